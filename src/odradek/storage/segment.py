"""One segment of a log: a file of batches and the indexes beside it.

The last segment of a log is active: its indexes are in memory, and it remembers where its last batches start, so that
readers at the tail find theirs without looking at the disk. All others are sealed and know little more than their size.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress

from odradek.ids import NO_OFFSET, NO_TIMESTAMP
from odradek.ports import Disk, File, FileSlice
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.batch import BATCH_HEADER, HEADER_SIZE, LENGTH_OVERHEAD, BatchHeader
from odradek.storage import offset_index, time_index
from odradek.storage.checkpoints import sync_file
from odradek.storage.config import LONG_MAX, LogConfig
from odradek.storage.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_name,
)
from odradek.storage.offset_index import OffsetIndex, SealedOffsetIndex
from odradek.storage.time_index import SealedTimeIndex, TimeIndex
from odradek.storage.txn_index import TxnIndex

INT32_MAX = (1 << 31) - 1

TAIL_BATCHES = 1024
"""How many of the last batches an active segment knows exactly (up to twice as many: it forgets half at a time)."""
_MOST_TAIL_BATCHES = 2 * TAIL_BATCHES

_NEAR_THE_END = 8
"""So many of them are looked at first: followers that keep up want one of these."""

RESERVED_FROM_BYTES = 1024 * 1024
"""A segment that is smaller may never grow to where it would be worth it,"""
MOST_RESERVED_BYTES = 4 * 1024 * 1024
"""and with so much ahead, asking costs next to nothing."""

_SCAN_BYTES = 4096
_OFFSET_LENGTH_DELTA = struct.Struct(">qi11xi")
"""Of a batch header: base offset, batch length, last offset delta."""


class Segment:
    """Batches with offsets from `base_offset` on."""

    __slots__ = (
        "_disk",
        "_file",
        "_indexed_size",
        "_max_offset_entries",
        "_max_time_entries",
        "_offset_index",
        "_reserved_size",
        "_stem",
        "_tail_offsets",
        "_tail_positions",
        "_time_index",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "deleted",
        "index_full",
        "last_indexable_offset",
        "max_timestamp",
        "max_timestamp_offset",
        "roll_jitter_ms",
        "roll_timestamp",
        "rolls_from_ms",
        "size",
        "txn_index",
    )

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, *, size: int, now_ms: int, config: LogConfig
    ) -> None:
        self._disk = disk
        self._stem = f"{directory}/{offset_name(base_offset)}"
        self._file: File | None = None
        self.base_offset = base_offset
        self.last_indexable_offset = base_offset + INT32_MAX
        self.size = size
        self.created_ms = now_ms
        self._indexed_size = -1  # The size when the index files were written.
        self._reserved_size = RESERVED_FROM_BYTES
        """Up to where it may grow without a thought of room."""
        self.deleted = False
        self.rolls_from_ms: int = NO_TIMESTAMP
        """The timestamp of its first batch, from which `segment.ms` counts; -1 while it is empty, or not active."""
        self.roll_jitter_ms = 0
        """How much sooner than others of the same settings it is rolled."""
        self.roll_timestamp = LONG_MAX
        """A batch later than this starts a new segment; not known while this one is empty."""
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset: int = NO_OFFSET
        self.bytes_since_index_entry = 0
        self.index_full = False
        self._max_offset_entries = config.segment_index_bytes // offset_index.ENTRY_BYTES
        self._max_time_entries = config.segment_index_bytes // time_index.ENTRY_BYTES - 1
        self._offset_index: OffsetIndex | SealedOffsetIndex = OffsetIndex(base_offset)
        self._time_index: TimeIndex | SealedTimeIndex = TimeIndex(base_offset)
        self._tail_offsets = array("q")  # The last offset of each of the last batches,
        self._tail_positions = array("q")  # and where that batch starts.
        self.txn_index = TxnIndex(disk, self._stem + TXN_INDEX_SUFFIX)

    def __repr__(self) -> str:
        return f"Segment({self._stem!r}, size={self.size})"

    @property
    def path(self) -> str:
        return self._stem + LOG_SUFFIX

    @property
    def file(self) -> File:
        """The batches; opened when first needed."""
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self._stem + LOG_SUFFIX)
        return file

    def create(self) -> None:
        """Make the empty file."""
        self._file = self._disk.open(self._stem + LOG_SUFFIX, create=True)

    def write(self, data: memoryview) -> None:
        """Put bytes behind the last batch; they count once `note` was told of each batch in them."""
        position = self.size
        try:
            if position + len(data) > self._reserved_size:
                self._reserve(position + len(data))
            (self._file or self.file).write(data, position)
        except OSError:
            self._drop_torn_write()
            raise

    def note(self, size: int, last_offset: int, max_timestamp: int, index_interval_bytes: int) -> None:
        """Count a batch that was written at the end, and index it if it is time to.

        (Hot: most batches are indexed, so the columns of both indexes grow here and not by a call each.)
        """
        position = self.size
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        since = self.bytes_since_index_entry
        if since > index_interval_bytes:
            since = 0
            # Both grow, as only those of a sealed segment do not, and nobody writes to such a one.
            index: OffsetIndex = self._offset_index  # type: ignore[assignment]
            times: TimeIndex = self._time_index  # type: ignore[assignment]
            base_offset, positions, timestamps = self.base_offset, index.positions, times.timestamps
            index.offsets.append(last_offset - base_offset)
            positions.append(position)
            # While no batch has a timestamp, there is none to be found by.
            if self.max_timestamp > (timestamps[-1] if timestamps else NO_TIMESTAMP):
                timestamps.append(self.max_timestamp)
                times.offsets.append(self.max_timestamp_offset - base_offset)
            if len(positions) >= self._max_offset_entries or len(timestamps) >= self._max_time_entries:
                self.index_full = True
        self.bytes_since_index_entry = since + size
        offsets = self._tail_offsets
        offsets.append(last_offset)
        self._tail_positions.append(position)
        if len(offsets) == _MOST_TAIL_BATCHES:
            del offsets[:TAIL_BATCHES]
            del self._tail_positions[:TAIL_BATCHES]
        self.size = position + size

    def locate(self, offset: int) -> tuple[int, int]:
        """Position and size of the first batch that ends at or behind this offset; (end, 0) if there is none."""
        offsets = self._tail_offsets
        if offsets:
            if offset > offsets[-1]:
                return self.size, 0
            nearly_all = len(offsets) - _NEAR_THE_END
            low = nearly_all if nearly_all > 0 and offset > offsets[nearly_all] else 0
            found = bisect_left(offsets, offset, low)
            positions = self._tail_positions
            position = positions[found]
            if found or not position:  # Else an earlier batch, forgotten by now, may be the one.
                following = found + 1
                return position, (positions[following] if following < len(positions) else self.size) - position
        return self._scan(self.position_before(offset), offset)

    def boundary_at_most(self, position: int, *, floor: int) -> int:
        """The last start of a batch known at or before this position; `floor` if none behind it is known."""
        positions = self._tail_positions
        if positions and position >= positions[0]:
            return max(positions[bisect_right(positions, position) - 1], floor)
        return max(self._offset_index.boundary_before(position), floor)

    def indexed_offset_from(self, position: int) -> int | None:
        """The last offset of the first batch at or behind this position that the offset index knows, if any."""
        return self._offset_index.offset_from(position)

    def slice(self, position: int, end: int) -> FileSlice:
        return FileSlice(self.file, position, end - position)

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Each batch's position and header from this position (a batch's start) on."""
        return read_headers(self.file, self.path, position, self.size)

    def read_batch(self, position: int, size: int) -> bytes:
        """The bytes of one batch."""
        return read_batch(self.file, self.path, position, size)

    def position_before(self, offset: int) -> int:
        """A batch's start before which no batch reaches this offset."""
        return self._offset_index.position_before(offset)

    def position_before_timestamp(self, timestamp: int) -> int:
        """A batch's start before which no record is as late as this timestamp."""
        return self.position_before(self._time_index.offset_before(timestamp))

    def largest_timestamp(self) -> int:
        """The largest timestamp in it, -1 if it has none: of a sealed segment the last entry of its time index."""
        if self.max_timestamp == NO_TIMESTAMP and self.size:
            last = self._time_index.last()
            if last is not None:
                self.max_timestamp, self.max_timestamp_offset = last
        return self.max_timestamp

    def first_timestamp(self) -> int:
        """The timestamp of its first batch, by which time-based rolling counts; -1 if it is empty."""
        for _, header in self.headers():
            return header.max_timestamp
        return NO_TIMESTAMP

    def sound_index_files(self) -> tuple[bytes, bytes] | None:
        """Both index files, by offset and by time, if they are there and can belong to a log file of this size."""
        try:
            offsets, times = self._index_files()
        except FileNotFoundError:
            return None
        if not times and self.first_timestamp() >= 0:
            return None
        sound = (
            offset_index.entries_are_sound(offsets, log_size=self.size)
            and time_index.entries_are_sound(times)
            and self.txn_index.is_sound(base_offset=self.base_offset)
        )
        return (offsets, times) if sound else None

    def _index_files(self) -> tuple[bytes, bytes]:
        read = self._disk.read_file
        return read(self._stem + OFFSET_INDEX_SUFFIX), read(self._stem + TIME_INDEX_SUFFIX)

    def activate(self, files: tuple[bytes, bytes] | None = None) -> int:
        """Take the indexes into memory and learn the tail from the file; the offset behind the last batch.

        `files` are the index files, if they were read already.
        """
        offsets, times = files or self._index_files()
        self._offset_index = OffsetIndex.from_bytes(self.base_offset, offsets)
        self._time_index = TimeIndex.from_bytes(self.base_offset, times)
        self._indexed_size = self.size
        return self._read_tail()

    def truncate(self, end_offset: int) -> int:
        """Cut the batch that holds this offset and all behind it; the offset behind the last batch left.

        The indexes must be in memory.
        """
        position, _ = self.locate(end_offset)
        offsets, times = self._memory_indexes()
        self.truncate_file(position)
        self._indexed_size = -1
        offsets.truncate(end_offset=end_offset)
        times.truncate(end_offset=end_offset)
        self.txn_index.truncate(end_offset=end_offset)
        return self._read_tail()

    def seal(self) -> None:
        """Write the indexes and keep them on disk from now on."""
        self._write_indexes()
        self.use_index_files()

    def use_index_files(self) -> None:
        """Trust the index files that are there: how a sealed segment is loaded."""
        self._offset_index = SealedOffsetIndex(self._disk, self._stem + OFFSET_INDEX_SUFFIX, self.base_offset)
        self._time_index = SealedTimeIndex(self._disk, self._stem + TIME_INDEX_SUFFIX, self.base_offset)
        self._tail_offsets = array("q")
        self._tail_positions = array("q")

    def maybe_write_indexes(self) -> None:
        """Write the indexes, unless what is on disk is still right."""
        if self._indexed_size != self.size:
            self._write_indexes()

    def _write_indexes(self) -> None:
        offsets, times = self._memory_indexes()
        if self.max_timestamp_offset != NO_OFFSET:
            times.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        self._disk.write_file(self._stem + OFFSET_INDEX_SUFFIX, offsets.to_bytes())
        self._disk.write_file(self._stem + TIME_INDEX_SUFFIX, times.to_bytes())
        self._indexed_size = self.size

    def truncate_file(self, size: int) -> None:
        """Cut the file; the caller sees to the indexes."""
        self.file.truncate(size)
        self.size = size
        self._reserved_size = max(size, RESERVED_FROM_BYTES)

    def give_back_room(self) -> None:
        """It will not grow any more for now: let others have what was reserved."""
        if self._reserved_size > max(self.size, RESERVED_FROM_BYTES):
            self.truncate_file(self.size)

    def reset_indexes(self) -> None:
        """Forget everything about the content, to be told again by `note` for each batch; the file stays."""
        self.size = 0
        self._indexed_size = -1
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = NO_OFFSET
        self.bytes_since_index_entry = 0
        self.index_full = False
        self._offset_index = OffsetIndex(self.base_offset)
        self._time_index = TimeIndex(self.base_offset)
        self._tail_offsets = array("q")
        self._tail_positions = array("q")

    def paths(self) -> list[str]:
        """Its files that exist."""
        return [path for path in self.possible_paths() if self._disk.exists(path)]

    def possible_paths(self) -> list[str]:
        """All files that a segment may have, the one with the batches first."""
        return [self._stem + suffix for suffix in SEGMENT_SUFFIXES]

    def sync(self) -> None:
        """Block until the batches, the aborted transactions and, of a sealed segment, the indexes are on the device.

        A start takes a transaction index that is missing for one that was never needed, unlike the others. Called from
        a worker thread: the segment may be deleted meanwhile, and then nobody needs it synced.
        """
        try:
            self.file.sync()
            if isinstance(self._offset_index, SealedOffsetIndex):
                for path in self.paths()[1:]:
                    sync_file(self._disk, path)
            else:
                self.txn_index.sync()
        except OSError:
            if not self.deleted:
                raise

    def moved(self, directory: str) -> None:
        """The directory has been renamed; files that are open have followed."""
        self._stem = f"{directory}/{offset_name(self.base_offset)}"
        self.txn_index.moved(self._stem + TXN_INDEX_SUFFIX)
        if isinstance(self._offset_index, SealedOffsetIndex):
            self._offset_index.moved(self._stem + OFFSET_INDEX_SUFFIX)
        if isinstance(self._time_index, SealedTimeIndex):
            self._time_index.moved(self._stem + TIME_INDEX_SUFFIX)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        for index in (self._offset_index, self._time_index):
            if isinstance(index, SealedOffsetIndex | SealedTimeIndex):
                index.close()

    def _memory_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        offsets, times = self._offset_index, self._time_index
        assert isinstance(offsets, OffsetIndex), "a sealed segment does not change"
        assert isinstance(times, TimeIndex), "a sealed segment does not change"
        return offsets, times

    def _read_tail(self) -> int:
        """Learn from the file what lies behind the last index entry; the offset behind the last batch."""
        offsets, times = self._memory_indexes()
        self.max_timestamp, self.max_timestamp_offset = times.last() or (NO_TIMESTAMP, NO_OFFSET)
        self._tail_offsets = array("q")
        self._tail_positions = array("q")
        start = offsets.positions[-1] if offsets else 0
        self.bytes_since_index_entry = self.size - start
        self.index_full = len(offsets) >= self._max_offset_entries or len(times) >= self._max_time_entries
        end_offset = self.base_offset
        for position, header in self.headers(start):
            end_offset = header.last_offset + 1
            self._remember(position, header.last_offset)
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
        return end_offset

    def _remember(self, position: int, last_offset: int) -> None:
        offsets = self._tail_offsets
        offsets.append(last_offset)
        self._tail_positions.append(position)
        if len(offsets) == _MOST_TAIL_BATCHES:
            del offsets[:TAIL_BATCHES]
            del self._tail_positions[:TAIL_BATCHES]

    def _scan(self, position: int, offset: int) -> tuple[int, int]:
        """Read headers forward until the batch is found."""
        file, size = self.file, self.size
        while position < size:
            chunk = file.read(position, _SCAN_BYTES)
            at = 0
            while at + HEADER_SIZE <= len(chunk) and position + at < size:
                base_offset, length, last_delta = _OFFSET_LENGTH_DELTA.unpack_from(chunk, at)
                _check_length(length, position + at, self.path, size)
                if base_offset + last_delta >= offset:
                    return position + at, length + LENGTH_OVERHEAD
                at += length + LENGTH_OVERHEAD
            if not at:
                raise _corrupt(f"{self.path} ends inside a batch header at {position}")
            position += at
        return size, 0

    def _reserve(self, end: int) -> None:
        """Ask for room beyond this end: never more than the segment has grown to already.

        A file system that finds room for a stretch at once spends less on each of the blocks than one that has to note,
        block by block, that it will have to (`bench/storage_append.py`).
        """
        ahead = min(end, MOST_RESERVED_BYTES)
        self.file.reserve(self.size, end - self.size + ahead)
        self._reserved_size = end + ahead

    def _drop_torn_write(self) -> None:
        """Cut what a failed write may have left, so that a clean shutdown later does not seal it in."""
        with suppress(OSError):  # The directory goes offline by the first error anyway, and recovery cuts the tail.
            self.file.truncate(self.size)


def read_headers(file: File, path: str, position: int, size: int) -> Iterator[tuple[int, BatchHeader]]:
    """Each batch's position and header, in so much of a segment's file, from this position (a batch's start) on."""
    while position < size:
        chunk = file.read(position, _SCAN_BYTES)
        start = position
        while position - start + HEADER_SIZE <= len(chunk) and position < size:
            header = BatchHeader(*BATCH_HEADER.unpack_from(chunk, position - start))
            _check_length(header.batch_length, position, path, size)
            yield position, header
            position += header.size
        if position == start:
            raise _corrupt(f"{path} ends inside a batch header at {position}")


def read_batch(file: File, path: str, position: int, size: int) -> bytes:
    """The bytes of one batch in a segment's file."""
    data = file.read(position, size)
    if len(data) != size:
        raise _corrupt(f"{path} ends inside a batch at {position}")
    return data


def _check_length(length: int, position: int, path: str, size: int) -> None:
    if length < HEADER_SIZE - LENGTH_OVERHEAD or position + length + LENGTH_OVERHEAD > size:
        raise _corrupt(f"{path} has a batch of length {length} at {position}, which cannot be")


def _corrupt(what: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, what)
