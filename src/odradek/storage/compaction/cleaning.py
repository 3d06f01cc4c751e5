"""One round of cleaning over one log, in slices: first the last offset of every key in the dirty part, as far as memory
goes; then every segment up to there, copied without the records that newer ones replace.

A slice reads a piece of a file and comes back, so that whoever drives it may go slowly, or give up between any two. It
shares nothing with the log but files that nobody writes to.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import compress

from odradek.ports import Disk, File
from odradek.protocol.errors import KafkaError
from odradek.protocol.records.batch import (
    BATCH_HEADER,
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    crc_matches,
    read_header,
)
from odradek.protocol.records.columns import read_columns
from odradek.protocol.records.pure import HAS_KEY, HAS_VALUE
from odradek.storage.compaction.batches import (
    Survivors,
    all_have_keys,
    delete_horizon,
    empty_batch,
    hashes_of,
    last_offsets,
)
from odradek.storage.compaction.cleaned_segment import CleanedSegment
from odradek.storage.compaction.offset_map import OffsetMap
from odradek.storage.compaction.plan import CleaningPlan, Source, group
from odradek.storage.compaction.transactions import CleanedTransactions
from odradek.storage.file_names import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from odradek.storage.segment import INT32_MAX
from odradek.storage.txn_index import AbortedTxn
from odradek.values import value


class Uncleanable(Exception):
    """A log has what nobody can read, or nobody can put together: it stays as it is."""


@value
class CleanedGroup:
    """Files that are complete and on the device, to be put in the place of some segments."""

    base_offset: int
    size: int
    replaced: tuple[int, ...]
    """The base offsets of those segments."""


@value
class Cleaned:
    """What a whole round has done."""

    end_offset: int
    """Up to where the log is clean."""
    bytes_read: int
    """Of segments that were copied; those whose keys were looked at are read once more before that."""
    bytes_written: int
    records_read: int
    records_kept: int
    keyless: int
    """Records that went because they have no key: from before the topic was compacted."""
    buffer_utilization: float
    """How full the memory for keys was, from 0 to 1."""


@value
class Slice:
    """What one step has done."""

    bytes_read: int = 0
    bytes_written: int = 0
    group: CleanedGroup | None = None
    """Which is complete, and waits to take the place of what it was made from."""
    round: Cleaned | None = None
    """There is nothing more to do."""


def clean(
    disk: Disk, *, plan: CleaningPlan, dedupe_bytes: int, load_factor: float, slice_bytes: int
) -> Generator[Slice, None, None]:
    """All the work, a slice each time; raises `Uncleanable`, or OSError as files do."""
    return _Cleaning(disk, plan, OffsetMap(dedupe_bytes, load_factor), slice_bytes).slices()


class _Cleaning:
    def __init__(self, disk: Disk, plan: CleaningPlan, offset_map: OffsetMap, slice_bytes: int) -> None:
        self._disk = disk
        self._plan = plan
        self._slice_bytes = slice_bytes
        self._map = offset_map
        self._bytes_read = 0
        self._bytes_written = 0
        self._records_read = 0
        self._records_kept = 0
        self._keyless = 0

    def slices(self) -> Generator[Slice, None, None]:
        yield from self._fill_map()
        sources = [source for source in self._plan.sources if source.base_offset < self._map.end_offset]
        transactions = CleanedTransactions(self._plan.aborted)
        for sources_of_one in group(sources, self._plan.config, self._index_bytes):
            yield from self._clean(sources_of_one, transactions)
        yield Slice(
            round=Cleaned(
                end_offset=self._map.end_offset,
                bytes_read=self._bytes_read,
                bytes_written=self._bytes_written,
                records_read=self._records_read,
                records_kept=self._records_kept,
                keyless=self._keyless,
                buffer_utilization=self._map.utilization,
            )
        )

    # The keys.

    def _fill_map(self) -> Iterator[Slice]:
        first_dirty = self._plan.first_dirty_offset
        transactions = CleanedTransactions(self._plan.aborted)
        self._map.end_offset = first_dirty
        for source in self._plan.sources:
            if source.end_offset <= first_dirty:
                continue
            with closing(self._disk.open(source.path)) as file:
                for piece in self._pieces(source, file):
                    for header, batch in piece:
                        if not self._map_batch(header, batch, transactions):
                            return
                    done = sum(header.size for header, _ in piece)
                    yield Slice(done)
            self._map.end_offset = source.end_offset

    def _map_batch(self, header: BatchHeader, batch: memoryview, transactions: CleanedTransactions) -> bool:
        """Whether there was room for its keys."""
        if header.is_control:
            _marker(header, batch, transactions)
        elif not transactions.is_aborted(header) and header.last_offset >= self._plan.first_dirty_offset:
            try:
                keys = last_offsets(header, batch)
            except KafkaError as wrong:
                raise _unreadable(header, wrong) from wrong
            if not self._map.take(keys):
                return False
        self._map.end_offset = max(self._map.end_offset, header.last_offset + 1)
        return True

    # The segments.

    def _clean(self, sources: Sequence[Source], transactions: CleanedTransactions) -> Iterator[Slice]:
        """Copy what stays of some segments into one."""
        config = self._plan.config
        cleaned = CleanedSegment(
            self._disk,
            self._plan.directory,
            sources[0].base_offset,
            index_interval_bytes=config.index_interval_bytes,
        )
        try:
            yield from self._copy(sources, cleaned, transactions)
            self._bytes_written += cleaned.write()
            cleaned.finish()
        except BaseException:
            cleaned.give_up()
            raise
        yield Slice(
            group=CleanedGroup(sources[0].base_offset, cleaned.size, tuple(source.base_offset for source in sources))
        )

    def _copy(
        self, sources: Sequence[Source], cleaned: CleanedSegment, transactions: CleanedTransactions
    ) -> Iterator[Slice]:
        last = max((source for source in sources if source.size), key=lambda each: each.base_offset, default=None)
        for source in sources:
            with closing(self._disk.open(source.path)) as file:
                read = 0
                for piece in self._pieces(source, file):
                    for header, batch in piece:
                        read += header.size
                        # A hole between two segments shall always mean that something is lost: what a cleaning leaves
                        # ends where what it replaces has ended.
                        is_last = source is last and read == source.size
                        left = self._left_of(header, batch, transactions, cleaned, is_last=is_last)
                        if left is not None:
                            if cleaned.size + len(left) > INT32_MAX:
                                raise Uncleanable(f"what is left of {source.path} is more than a segment may hold")
                            cleaned.append(read_header(left), left)
                    done = sum(header.size for header, _ in piece)
                    written = cleaned.write()
                    self._bytes_read += done
                    self._bytes_written += written
                    yield Slice(done, written)

    def _left_of(
        self,
        header: BatchHeader,
        batch: memoryview,
        transactions: CleanedTransactions,
        cleaned: CleanedSegment,
        *,
        is_last: bool,
    ) -> bytes | bytearray | memoryview | None:
        """What is to be written in its stead, if anything."""
        horizon = delete_horizon(header)
        self._records_read += header.records_count
        has_empty_transaction = False
        if header.is_control:
            has_empty_transaction, aborted = _marker(header, batch, transactions)
            if aborted is not None:
                cleaned.append_aborted(aborted)
            goes = has_empty_transaction and horizon is not None and horizon <= self._plan.now_ms
        else:
            goes = transactions.is_aborted(header)
        survivors = Survivors(header)
        if header.records_count and not goes:
            self._keep(header, batch, survivors)
        if not survivors.count:
            if not (is_last or self._is_last_of_producer(header)):
                return None
            return empty_batch(header) if header.records_count else batch
        self._records_kept += survivors.count
        may_go_in_time = has_empty_transaction if header.is_control else survivors.has_tombstones
        notes_horizon = may_go_in_time and horizon is None
        if survivors.is_whole and not notes_horizon:
            return batch
        config = self._plan.config
        return survivors.as_batch(horizon_ms=self._plan.now_ms + config.delete_retention_ms if notes_horizon else None)

    def _keep(self, header: BatchHeader, batch: memoryview, survivors: Survivors) -> None:
        """Find the records that no newer one replaces, and the tombstones whose time has not come."""
        horizon = delete_horizon(header)
        keeps_tombstones = horizon is None or self._plan.now_ms < horizon
        try:
            for body, columns in read_columns(batch, header):
                numbers = range(len(columns[0]))
                if header.is_control or header.base_offset >= self._map.end_offset:
                    survivors.add(body, columns, numbers)
                else:
                    stays = self._map.are_last(hashes_of(columns), columns[0])
                    left = list(compress(numbers, stays))
                    if not (keeps_tombstones and all_have_keys(columns[3])):
                        left = self._without_what_goes_anyway(left, columns[3], keeps_tombstones=keeps_tombstones)
                    survivors.add(body, columns, left)
        except KafkaError as wrong:
            raise _unreadable(header, wrong) from wrong

    def _without_what_goes_anyway(self, numbers: list[int], flags: bytes, *, keeps_tombstones: bool) -> list[int]:
        """Of these records those with a key, and with a value unless tombstones stay."""
        self._keyless += sum(not flag & HAS_KEY for flag in flags)
        return [each for each in numbers if flags[each] & HAS_KEY and (keeps_tombstones or flags[each] & HAS_VALUE)]

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether the log knows a producer by this batch: with it would go the sequence, or epoch, that comes next."""
        if header.producer_id < 0:
            return False
        last = self._plan.producers.get(header.producer_id)
        if last is None:
            return False
        if last.data_offset is not None:
            return header.last_offset == last.data_offset
        return header.is_control and header.producer_epoch == last.epoch

    # Reading.

    def _pieces(self, source: Source, file: File) -> Iterator[list[tuple[BatchHeader, memoryview]]]:
        """The batches of a segment, some at a time: as many as one read brings, and at least one."""
        position = 0
        while position < source.size:
            data = file.read(position, min(self._slice_bytes, source.size - position))
            first_size = self._first_size(data, source, position)
            if first_size > len(data):
                data = file.read(position, first_size)
            piece = self._whole_batches(data, source, position)
            position += sum(header.size for header, _ in piece)
            yield piece

    def _first_size(self, data: bytes, source: Source, position: int) -> int:
        if len(data) < HEADER_SIZE:
            raise Uncleanable(f"{source.path} ends inside a batch header at {position}")
        size = read_header(data).size
        if not HEADER_SIZE <= size <= source.size - position:
            raise Uncleanable(f"{source.path} has a batch of {size} bytes at {position}, which cannot be")
        return size

    def _whole_batches(self, data: bytes, source: Source, start: int) -> list[tuple[BatchHeader, memoryview]]:
        view = memoryview(data)
        found: list[tuple[BatchHeader, memoryview]] = []
        at = 0
        while at + HEADER_SIZE <= len(data):
            header = BatchHeader(*BATCH_HEADER.unpack_from(data, at))
            if header.size < HEADER_SIZE or header.magic != MAGIC:
                raise Uncleanable(f"{source.path} has at {start + at} what is no batch")
            if at + header.size > len(data):
                break
            batch = view[at : at + header.size]
            if not crc_matches(batch):
                raise Uncleanable(f"{source.path} has at {start + at} a batch whose checksum does not match")
            found.append((header, batch))
            at += header.size
        if not found:
            raise Uncleanable(f"{source.path} ends inside a batch at {start}")
        return found

    def _index_bytes(self, source: Source) -> int:
        stem = source.path.removesuffix(LOG_SUFFIX)
        return max(self._disk.file_size(stem + suffix) for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX))


def _unreadable(header: BatchHeader, wrong: KafkaError) -> Uncleanable:
    return Uncleanable(f"the batch at offset {header.base_offset} cannot be read: {wrong}")


def _marker(
    header: BatchHeader, batch: memoryview, transactions: CleanedTransactions
) -> tuple[bool, AbortedTxn | None]:
    try:
        return transactions.marker(header, batch)
    except KafkaError as wrong:
        raise _unreadable(header, wrong) from wrong
