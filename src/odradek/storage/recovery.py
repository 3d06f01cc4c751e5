"""Opening a log: find its segments, mend what a crash has left, and learn its end.

After a clean shutdown the indexes are trusted if they look sound. After anything else every batch from the recovery
point's segment on is checked: the first one that is torn or damaged ends the log there, as whatever comes behind it
cannot be placed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from odradek.ids import Uuid, uuid_text
from odradek.ports import Disk
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.batch import ATTRIBUTES_POSITION, BATCH_HEADER, HEADER_SIZE, MAGIC, BatchHeader
from odradek.protocol.records.crc import crc32c
from odradek.storage.checkpoints import read_partition_metadata, write_partition_metadata
from odradek.storage.config import LogConfig
from odradek.storage.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    offset_name,
    offset_of,
    snapshot_path,
)
from odradek.storage.leader_epochs import LeaderEpochs
from odradek.storage.producer_state import Producers
from odradek.storage.segment import Segment
from odradek.values import value

_CHUNK_BYTES = 1 << 20

_RETRIED_FOR_MS = 600_000
"""Longer than producers keep trying (`delivery.timeout.ms`, two minutes unless told otherwise)."""

_RECALLED_BYTES = 128 * 1024
"""Five batches of the usual size, with something to spare."""

logger = logging.getLogger(__name__)


@value
class Loaded:
    """The segments of a log, the last one active."""

    segments: list[Segment]
    log_end_offset: int
    rebuilt_from: int | None
    """The base offset of the first segment that was read through, whose transaction indexes are to be made anew."""
    snapshots: list[int] | None = None
    """Offsets of the producer snapshots beside them, where they are known: listing a directory is not free."""


@value
class Opened:
    """All that a log's directory has told."""

    loaded: Loaded
    log_start_offset: int
    leader_epochs: LeaderEpochs
    producers: Producers
    snapshot_offset: int
    """Where the producers' state was loaded from: a snapshot of the same offset need not be written again."""


def open_directory(
    disk: Disk,
    directory: str,
    *,
    topic_id: Uuid,
    config: LogConfig,
    now_ms: int,
    log_start_offset: int,
    recovery_point: int,
    clean: bool,
    producers: Producers,
    on_damage: Callable[[str], None],
) -> Opened:
    """Make the directory if it is not there, mend it if need be, and learn all there is to know.

    `on_damage` hears of what is about to be cut or removed, unless it is a last batch that was not written to its end.
    """
    if not disk.exists(directory):
        disk.make_directory(directory)
    may_be_torn = not clean and recovery_point == 0
    _check_topic_id(disk, f"{directory}/{PARTITION_METADATA}", topic_id, may_be_torn=may_be_torn)
    leader_epochs = LeaderEpochs.load(disk, f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
    loaded = load_segments(
        disk,
        directory,
        config=config,
        leader_epochs=leader_epochs,
        now_ms=now_ms,
        log_start_offset=log_start_offset,
        recovery_point=recovery_point,
        clean=clean,
        on_damage=on_damage,
    )
    log_start_offset = _start_of(loaded, log_start_offset, directory)
    leader_epochs.truncate_from_end(loaded.log_end_offset)
    leader_epochs.truncate_from_start(log_start_offset)
    snapshot_offset = load_producers(
        disk, directory, producers, loaded, log_start_offset=log_start_offset, now_ms=now_ms
    )
    return Opened(loaded, log_start_offset, leader_epochs, producers, snapshot_offset)


def _start_of(loaded: Loaded, checkpointed: int, directory: str) -> int:
    """Where the log starts: as the checkpoint says, unless there is no such place in the log (ADR 15)."""
    first_offset = loaded.segments[0].base_offset
    if checkpointed <= loaded.log_end_offset:
        return max(checkpointed, first_offset)
    logger.warning(
        "%s holds offsets %d to %d, and the checkpoint says that it starts at %d: what the log holds counts",
        directory,
        first_offset,
        loaded.log_end_offset,
        checkpointed,
    )
    return first_offset


def _check_topic_id(disk: Disk, path: str, topic_id: Uuid, *, may_be_torn: bool) -> None:
    """A directory without an id gets this one; that of another topic is refused.

    The file is synced with the first batches, so until then a power loss may leave another id than was written.
    """
    found_id = read_partition_metadata(disk, path)
    if found_id == topic_id:
        return
    if found_id is None or may_be_torn:
        write_partition_metadata(disk, path, topic_id)
    else:
        raise KafkaError(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"{path} names topic id {uuid_text(found_id)}, not {uuid_text(topic_id)}",
        )


def load_segments(
    disk: Disk,
    directory: str,
    *,
    config: LogConfig,
    leader_epochs: LeaderEpochs,
    now_ms: int,
    log_start_offset: int,
    recovery_point: int,
    clean: bool,
    on_damage: Callable[[str], None],
) -> Loaded:
    """Open all segments of a directory that exists; makes an empty one where there is none."""
    names = _tidy(disk, directory)
    bases = _offsets(names, LOG_SUFFIX)
    snapshots: list[int] | None = _offsets(names, SNAPSHOT_SUFFIX)
    if not bases:
        segment = Segment(disk, directory, log_start_offset, size=0, now_ms=now_ms, config=config)
        segment.create()
        return Loaded([segment], log_start_offset, None, snapshots)
    # A segment that ends just at the recovery point counts too: it may have been sealed since, its indexes not synced.
    first_unflushed = max((base for base in bases if base < recovery_point), default=bases[0])
    segments: list[Segment] = []
    rebuilt_from: int | None = None
    end_offset = bases[0]
    epochs_are_lost = not leader_epochs.entries
    for number, base in enumerate(bases):
        size = disk.file_size(f"{directory}/{offset_name(base)}{LOG_SUFFIX}")
        segment = Segment(disk, directory, base, size=size, now_ms=now_ms, config=config)
        segments.append(segment)
        is_last = number == len(bases) - 1
        trusted = clean or base < first_unflushed
        if trusted and (loaded_end := _load_by_indexes(segment, is_last=is_last)) is not None:
            end_offset = max(base, loaded_end)
            if epochs_are_lost:
                _learn_epochs(segment, leader_epochs)
            continue
        if size and trusted:
            logger.warning("Rebuilding the indexes of %s: they are missing or damaged", segment.path)
        rebuilt_from = base if rebuilt_from is None else rebuilt_from
        if not trusted:  # The file may be from before a truncation: the batches know better.
            leader_epochs.truncate_from_end(base)
        end_offset = max(base, read_through(segment, size, config, leader_epochs))
        was_cut = segment.size < size
        if was_cut:
            logger.warning(
                "Cutting %s from %d to %d bytes, the end of its last whole batch", segment.path, size, segment.size
            )
            if not is_last or not _is_torn(segment, size):
                on_damage(f"{segment.path} is damaged at byte {segment.size} of {size}")
            segment.truncate_file(segment.size)
            # Otherwise a power loss could bring the torn bytes back, in the middle of a log that has gone on since.
            segment.file.sync()
        elif is_last and not trusted:
            segment.truncate_file(segment.size)  # What was reserved behind it, and is of no use any more.
        wrong = None if trusted or is_last else _wrong_behind(end_offset, bases[number + 1], config, was_cut=was_cut)
        if wrong is not None:
            logger.warning("Removing what comes behind offset %d in %s: %s there", end_offset, directory, wrong)
            on_damage(f"{directory}: {wrong} at offset {end_offset}")
            _remove_segments(disk, directory, bases[number + 1 :])
            disk.sync_directory(directory)
            snapshots = None
            break
        if not is_last:
            segment.seal()
            if trusted:
                segment.sync()  # No later flush comes here, and a power loss would leave rubbish that may look sound.
    return Loaded(segments, end_offset, rebuilt_from, snapshots)


def _is_torn(segment: Segment, file_size: int) -> bool:
    """Whether what follows the whole batches is the beginning of one: all that is left of a write that a kill cut."""
    left = file_size - segment.size
    if left < HEADER_SIZE:
        return True
    header = BatchHeader(*BATCH_HEADER.unpack(segment.file.read(segment.size, HEADER_SIZE)))
    return header.magic == MAGIC and header.size > left


def _learn_epochs(segment: Segment, leader_epochs: LeaderEpochs) -> None:
    """Read the epochs from the batches' headers: their file is written without a sync, so a power loss may take it."""
    for _, header in segment.headers():
        if header.leader_epoch > leader_epochs.latest:
            leader_epochs.assign(header.leader_epoch, header.base_offset)


def _wrong_behind(end_offset: int, following_base: int, config: LogConfig, *, was_cut: bool) -> str | None:
    """Why the next segment does not continue the one that ends there, if it does not.

    A power loss may take the tail of a segment and keep the next (compaction leaves gaps as well, which are none); or
    undo a truncation, and keep a segment that was begun after it: of two histories the one counts that begins here.
    """
    if was_cut or (end_offset < following_base and not config.compacted):
        return "the log has a hole"
    return "the log has two histories" if end_offset > following_base else None


def _load_by_indexes(segment: Segment, *, is_last: bool) -> int | None:
    """Trust the index files if they look sound, else None; the end offset, which is known of the last segment only."""
    try:
        files = segment.sound_index_files()
        if files is None:
            return None
        if not is_last:
            segment.use_index_files()
            return segment.base_offset
        return segment.activate(files)
    except KafkaError:  # Where the indexes lead, there are no whole batches.
        return None


def read_through(segment: Segment, file_size: int, config: LogConfig, leader_epochs: LeaderEpochs) -> int:
    """Check every batch and index the sound ones, up to the first that is not; the offset behind the last sound one.

    `segment.size` then says how many bytes are sound.
    """
    segment.reset_indexes()
    end_offset = segment.base_offset
    data, data_start = b"", 0
    while (position := segment.size) + HEADER_SIZE <= file_size:
        at = position - data_start
        if at + HEADER_SIZE > len(data):
            data, data_start, at = segment.file.read(position, _CHUNK_BYTES), position, 0
        header = BatchHeader(*BATCH_HEADER.unpack_from(data, at))
        if not _is_plausible(header, end_offset, segment, bytes_left=file_size - position):
            break
        if at + header.size > len(data):
            data, data_start, at = segment.file.read(position, max(_CHUNK_BYTES, header.size)), position, 0
        if crc32c(memoryview(data)[at + ATTRIBUTES_POSITION : at + header.size]) != header.crc:
            break
        segment.note(header.size, header.last_offset, header.max_timestamp, config.index_interval_bytes)
        if header.leader_epoch > leader_epochs.latest:
            leader_epochs.assign(header.leader_epoch, header.base_offset)
        end_offset = header.last_offset + 1
    return end_offset


def load_producers(
    disk: Disk,
    directory: str,
    producers: Producers,
    loaded: Loaded,
    *,
    log_start_offset: int,
    now_ms: int,
) -> int:
    """Bring the producers' state up to the end of the log; the offset of the snapshot it came from."""
    newest = loaded.log_end_offset if loaded.rebuilt_from is None else loaded.rebuilt_from
    start_offset = _load_snapshot(
        disk, directory, producers, loaded, newest=newest, log_start_offset=log_start_offset, now_ms=now_ms
    )
    for number, segment in enumerate(loaded.segments):
        following = loaded.segments[number + 1].base_offset if number + 1 < len(loaded.segments) else None
        if following is not None and following <= start_offset:
            continue
        is_rebuilt = loaded.rebuilt_from is not None and segment.base_offset >= loaded.rebuilt_from
        if is_rebuilt:
            segment.txn_index.clear()
        replay_segment(segment, producers, start_offset=start_offset, index_aborted=is_rebuilt)
    if producers.any_since(now_ms - _RETRIED_FOR_MS):
        _recall_batches(loaded.segments, producers, start_offset)
    return start_offset


def _recall_batches(segments: list[Segment], producers: Producers, offset: int) -> None:
    """Find the batches before a snapshot again, of which it keeps only the last of each producer.

    A producer that had several under way when the node stopped sends all of them again, and each must be known.
    """
    headers: list[BatchHeader] = []
    left = _RECALLED_BYTES
    for segment in reversed([segment for segment in segments if segment.base_offset < offset]):
        end, _ = segment.locate(offset)
        try:
            headers[:0] = _headers_between(segment, segment.boundary_at_most(max(end - left, 0), floor=0), end)
        except KafkaError:
            break  # It is damaged, which is its readers' trouble and no reason not to start.
        left -= end
        if left <= 0:
            break
    producers.recall(headers)


def _headers_between(segment: Segment, start: int, end: int) -> list[BatchHeader]:
    headers: list[BatchHeader] = []
    for position, header in segment.headers(start):
        if position >= end:
            break
        headers.append(header)
    return headers


def replay_segment(segment: Segment, producers: Producers, *, start_offset: int, index_aborted: bool) -> None:
    """Tell the producers of every batch from this offset on."""
    start, _ = segment.locate(start_offset)
    for position, header in segment.headers(start):
        if header.producer_id < 0:
            continue
        completed = producers.replay(header, lambda: segment.read_batch(position, header.size))  # noqa: B023
        if completed is not None:
            if completed.aborted and index_aborted:
                segment.txn_index.append(producers.aborted_entry(completed))
            producers.complete(completed)


def snapshot_offsets(disk: Disk, directory: str) -> list[int]:
    """The offsets of the producer snapshots in a directory, ascending."""
    return _offsets(disk.list(directory), SNAPSHOT_SUFFIX)


def _offsets(names: list[str], suffix: str) -> list[int]:
    """Of the files with that suffix, ascending."""
    ending = [name for name in names if name.endswith(suffix)]
    return sorted(offset for name in ending if (offset := offset_of(name, suffix)) is not None)


def _load_snapshot(
    disk: Disk,
    directory: str,
    producers: Producers,
    loaded: Loaded,
    *,
    newest: int,
    log_start_offset: int,
    now_ms: int,
) -> int:
    """Load the newest usable snapshot and remove those that are useless: beyond the end, stray, or damaged."""
    offsets = snapshot_offsets(disk, directory) if loaded.snapshots is None else loaded.snapshots
    bases = {segment.base_offset for segment in loaded.segments}
    usable = [offset for offset in offsets if log_start_offset < offset <= newest]
    kept = [offset for offset in usable if offset in bases or offset == usable[-1]]
    for offset in offsets:
        if offset not in kept:
            disk.unlink(snapshot_path(directory, offset))
    for offset in reversed(kept):
        path = snapshot_path(directory, offset)
        try:
            producers.load(disk.read_file(path), now_ms)
        except ValueError as wrong:
            logger.warning("Removing unreadable producer snapshot %s: %s", path, wrong)
            disk.unlink(path)
        else:
            return offset
    producers.clear()
    return log_start_offset


def _is_plausible(header: BatchHeader, end_offset: int, segment: Segment, *, bytes_left: int) -> bool:
    return (
        header.magic == MAGIC
        and HEADER_SIZE <= header.size <= bytes_left
        and header.last_offset_delta >= 0
        and end_offset <= header.base_offset
        and header.last_offset <= segment.last_indexable_offset
    )


def _tidy(disk: Disk, directory: str) -> list[str]:
    """Finish or undo what a crash has interrupted; the names of the files that are left."""
    names = disk.list(directory)
    for name in [name for name in names if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX))]:
        disk.unlink(f"{directory}/{name}")
        names.remove(name)
    if any(name.endswith(SWAP_SUFFIX) for name in names):
        _finish_swaps(disk, directory, names)
        names = disk.list(directory)
    bases = _offsets(names, LOG_SUFFIX)
    for name in [name for name in names if name.endswith(SEGMENT_SUFFIXES[1:])]:
        offset = offset_of(name, f".{name.rpartition('.')[2]}")
        if offset is not None and offset not in bases:
            logger.warning("Removing %s/%s, an index without its log", directory, name)
            disk.unlink(f"{directory}/{name}")
            names.remove(name)
    return names


def _finish_swaps(disk: Disk, directory: str, names: list[str]) -> None:
    """Compaction renames its result to `.swap` when it is complete: from there on, the result counts.

    The segments it replaces lie between its base offset and the next segment's that was no part of it: those whose base
    offset is not above its last offset.
    """
    swapped = [name.removesuffix(SWAP_SUFFIX) for name in names if name.endswith(SWAP_SUFFIX)]
    for log_name in (name for name in swapped if offset_of(name, LOG_SUFFIX) is not None):
        base = int(log_name.removesuffix(LOG_SUFFIX))
        last = _last_offset(disk, f"{directory}/{log_name}{SWAP_SUFFIX}", base)
        # Of the segments that were being removed, some may be gone but for an index: it is none of what comes instead.
        replaced = {offset: None for suffix in SEGMENT_SUFFIXES for offset in _offsets(names, suffix)}
        _remove_segments(disk, directory, sorted(offset for offset in replaced if base <= offset <= last))
    for name in swapped:
        disk.rename(f"{directory}/{name}{SWAP_SUFFIX}", f"{directory}/{name}")


def _last_offset(disk: Disk, path: str, base_offset: int) -> int:
    file = disk.open(path)
    try:
        size, position, last = file.size(), 0, base_offset
        while position + HEADER_SIZE <= size:
            header = BatchHeader(*BATCH_HEADER.unpack(file.read(position, HEADER_SIZE)))
            if header.size < HEADER_SIZE:
                break
            last, position = header.last_offset, position + header.size
        return last
    finally:
        file.close()


def _remove_segments(disk: Disk, directory: str, bases: list[int]) -> None:
    for base in bases:
        for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX):
            path = f"{directory}/{offset_name(base)}{suffix}"
            if disk.exists(path):
                logger.warning("Removing %s", path)
                disk.unlink(path)
