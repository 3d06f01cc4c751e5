"""One replica's log: batches in segments, appended at the end and read from anywhere.

Everything here is synchronous and belongs to one thread. An append costs one header, one checksum and one write; state
changes only after the write has succeeded, so an error leaves the log as it was.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable

from odradek.ids import NO_TIMESTAMP, LeaderEpoch, Offset, Uuid, uuid_text
from odradek.ports import Disk, FileSlice
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.batch import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER,
    COMPRESSION_MASK,
    CONTROL_BIT,
    LENGTH_OVERHEAD,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    iter_batches,
)
from odradek.protocol.records.compression import Compression
from odradek.protocol.records.control import read_end_txn_marker
from odradek.protocol.records.crc import crc32c
from odradek.storage import recovery, retention, timestamps, validation
from odradek.storage.checkpoints import read_partition_metadata, write_partition_metadata
from odradek.storage.config import LONG_MAX, LogConfig
from odradek.storage.deletion import Deletions
from odradek.storage.file_names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from odradek.storage.flushing import FlushWork
from odradek.storage.leader_epochs import EpochEnd, LeaderEpochs
from odradek.storage.producer_state import DEFAULT_EXPIRATION_MS, KeptBatch, Producers, last_sequence_of
from odradek.storage.segment import Segment
from odradek.storage.timestamps import TimestampOffset
from odradek.storage.txn_index import AbortedTxn
from odradek.storage.validation import Origin
from odradek.values import value

_unpack_header = BATCH_HEADER.unpack_from
_OFFSET_LENGTH_EPOCH = struct.Struct(">qii")
_patch = _OFFSET_LENGTH_EPOCH.pack_into

_LARGEST_CODEC = int(Compression.ZSTD)


@value
class AppendInfo:
    """Where a batch went; for a duplicate, where it went the first time."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the topic's timestamps are those of the append."""
    log_start_offset: int
    duplicate: bool


@value
class LogRead:
    """Whole batches, the first of which holds the offset asked for or the next one there is; maybe none yet."""

    records: FileSlice | bytes
    segment_base_offset: int
    position: int


class Log:
    """The log of one partition in one directory."""

    __slots__ = (
        "_active",
        "_bases",
        "_config",
        "_deletions",
        "_disk",
        "_draw",
        "_flush_messages",
        "_flush_ms",
        "_flushed_once",
        "_hw_position",
        "_hw_segment",
        "_index_interval_bytes",
        "_last_flush_ms",
        "_max_message_bytes",
        "_max_timestamp_ahead_ms",
        "_roll_jitter_ms",
        "_sealed_bytes",
        "_segment_bytes",
        "_snapshot_offset",
        "_told_ms",
        "_verbatim",
        "directory",
        "flushes_on_append",
        "high_watermark",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "producers",
        "recovery_point",
        "segments",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        topic: str,
        partition: int,
        topic_id: Uuid,
        config: LogConfig,
        now_ms: int,
        log_start_offset: int,
        high_watermark: int,
        recovery_point: int,
        loaded: recovery.Loaded,
        leader_epochs: LeaderEpochs,
        producers: Producers,
        snapshot_offset: int,
        draw: Callable[[int], int],
    ) -> None:
        """Use `Log.open`, which finds out all of these."""
        self._disk = disk
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.segments = loaded.segments
        self._bases = [segment.base_offset for segment in loaded.segments]
        self._active = loaded.segments[-1]
        self._sealed_bytes = sum(segment.size for segment in loaded.segments[:-1])
        self.log_start_offset = Offset(log_start_offset)
        self.log_end_offset = Offset(loaded.log_end_offset)
        self.recovery_point = recovery_point
        self.leader_epochs = leader_epochs
        self.producers = producers
        self._snapshot_offset = snapshot_offset
        self._deletions = Deletions(disk)
        self._told_ms = now_ms  # The time of the last append: recent enough for what has no time of its own.
        self._last_flush_ms = now_ms
        self._flushed_once = False
        self._draw = draw
        self._roll_jitter_ms = 0
        self.config = config
        self._set_roll_timestamp(self._active.first_timestamp())
        self.high_watermark = self.log_start_offset
        self._hw_segment = self.segments[0]
        self._hw_position = 0
        self._place_high_watermark(high_watermark)

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        *,
        topic: str,
        partition: int,
        topic_id: Uuid,
        config: LogConfig,
        now_ms: int,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        high_watermark: int | None = None,
        clean: bool = False,
        producer_expiration_ms: int = DEFAULT_EXPIRATION_MS,
        draw: Callable[[int], int] = lambda bound: 0,
    ) -> Log:
        """Open the directory's log, or make an empty one.

        `recovery_point`, `log_start_offset` and `high_watermark` come from the checkpoints, `clean` says that the last
        shutdown was: otherwise torn tails are cut and indexes and producer state rebuilt. `draw(n)` is a random number
        below n, for the jitter of time-based rolling.
        """
        if not disk.exists(directory):
            disk.make_directory(directory)
        metadata_path = f"{directory}/{PARTITION_METADATA}"
        found_id = read_partition_metadata(disk, metadata_path)
        if found_id is None:
            write_partition_metadata(disk, metadata_path, topic_id)
        elif found_id != topic_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{directory} belongs to topic id {uuid_text(found_id)}, not {uuid_text(topic_id)}",
            )
        leader_epochs = LeaderEpochs.load(disk, f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
        loaded = recovery.load_segments(
            disk,
            directory,
            config=config,
            leader_epochs=leader_epochs,
            now_ms=now_ms,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean=clean,
        )
        log_start_offset = max(log_start_offset, loaded.segments[0].base_offset)
        leader_epochs.truncate_from_end(loaded.log_end_offset)
        leader_epochs.truncate_from_start(log_start_offset)
        producers = Producers(producer_expiration_ms)
        snapshot_offset = recovery.load_producers(
            disk, directory, producers, loaded, log_start_offset=log_start_offset, now_ms=now_ms
        )
        log = cls(
            disk,
            directory,
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            config=config,
            now_ms=now_ms,
            log_start_offset=log_start_offset,
            high_watermark=log_start_offset if high_watermark is None else high_watermark,
            recovery_point=min(recovery_point, loaded.log_end_offset),
            loaded=loaded,
            leader_epochs=leader_epochs,
            producers=producers,
            snapshot_offset=snapshot_offset,
            draw=draw,
        )
        if log.log_end_offset < log.log_start_offset:
            log.truncate_fully_and_start_at(log.log_start_offset)
        return log

    def __repr__(self) -> str:
        return f"Log({self.topic}-{self.partition}, {self.log_start_offset}..{self.log_end_offset})"

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        """What every append compares with is kept ready."""
        self._config = config
        self._verbatim = validation.is_verbatim(config)
        self._max_message_bytes = config.max_message_bytes
        self._max_timestamp_ahead_ms = config.message_timestamp_after_max_ms
        self._segment_bytes = config.segment_bytes
        self._index_interval_bytes = config.index_interval_bytes
        self._flush_messages = config.flush_messages
        self._flush_ms = config.flush_ms
        self.flushes_on_append = config.flush_messages != LONG_MAX or config.flush_ms != LONG_MAX
        jitter = min(config.segment_jitter_ms, config.segment_ms)
        self._roll_jitter_ms = self._draw(jitter) if jitter > 0 else 0

    @property
    def size_bytes(self) -> int:
        return self._sealed_bytes + self._active.size

    @property
    def last_stable_offset(self) -> Offset:
        """What a reader at read_committed may see ends here."""
        unstable = self.producers.first_unstable_offset
        return self.high_watermark if unstable is None or unstable > self.high_watermark else Offset(unstable)

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    # Appending

    def append_as_leader(
        self, batch: memoryview, *, leader_epoch: int, now_ms: int, origin: Origin = Origin.CLIENT
    ) -> AppendInfo:
        """Give exactly one batch the next offsets and write it; raises `KafkaError`, and then nothing has changed.

        The view is patched in place, so it must be writable. (Hot: one header, one checksum, one write.)
        """
        try:
            (
                given_offset,
                length,
                _,
                magic,
                crc,
                attributes,
                last_delta,
                _,
                max_timestamp,
                producer_id,
                producer_epoch,
                base_sequence,
                count,
            ) = _unpack_header(batch)
        except struct.error:
            raise validation.refuse_short(batch) from None
        size = len(batch)
        if (
            length + LENGTH_OVERHEAD != size
            or magic != MAGIC
            or count != last_delta + 1
            or count <= 0
            or given_offset
            or size > self._max_message_bytes
            or attributes & CONTROL_BIT
            or attributes & COMPRESSION_MASK > _LARGEST_CODEC
            or (producer_id >= 0 and base_sequence < 0)
        ):
            validation.check_header(batch, self._config, origin)
        if crc32c(batch[ATTRIBUTES_POSITION:]) != crc:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a batch's checksum does not match its content")
        log_append_time_ms = NO_TIMESTAMP
        if self._verbatim and not attributes & TIMESTAMP_TYPE_BIT:
            if max_timestamp > now_ms + self._max_timestamp_ahead_ms:
                validation.check_timestamp(max_timestamp, self._config, now_ms)
        else:
            batch = validation.prepare(batch, self._config, origin, now_ms)
            size = len(batch)
            length = size - LENGTH_OVERHEAD
            if self._config.message_timestamp_type == validation.LOG_APPEND_TIME:
                max_timestamp = log_append_time_ms = now_ms

        base_offset = self.log_end_offset
        last_offset = base_offset + last_delta
        if producer_id >= 0:
            earlier = self._check_producer(
                batch, origin, attributes, producer_id, producer_epoch, base_sequence, last_delta
            )
            if earlier is not None:
                return AppendInfo(
                    earlier.first_offset, earlier.last_offset, earlier.timestamp, self.log_start_offset, True
                )
        segment = self._active
        if (
            segment.size + size > self._segment_bytes
            or max_timestamp > segment.roll_timestamp
            or segment.index_full
            or last_offset > segment.last_indexable_offset
        ):
            segment = self._segment_for(size, last_offset, now_ms)
        if leader_epoch != self.leader_epochs.latest:
            self.leader_epochs.assign(leader_epoch, base_offset)
        _patch(batch, 0, base_offset, length, leader_epoch)
        segment.write(batch)
        if not segment.size:
            self._set_roll_timestamp(max_timestamp)
        segment.note(size, last_offset, max_timestamp, self._index_interval_bytes)
        self.log_end_offset = Offset(last_offset + 1)
        self._told_ms = now_ms
        if producer_id >= 0:
            if attributes & CONTROL_BIT:
                self._replay_producer(segment, BatchHeader(*_unpack_header(batch)), batch)
            else:
                self.producers.appended(
                    producer_id,
                    producer_epoch,
                    KeptBatch(
                        base_sequence,
                        last_sequence_of(base_sequence, last_delta),
                        base_offset,
                        last_offset,
                        max_timestamp,
                    ),
                    transactional=attributes & TRANSACTIONAL_BIT != 0,
                )
        return AppendInfo(base_offset, last_offset, log_append_time_ms, self.log_start_offset, False)

    def append_as_follower(self, batches: memoryview, *, now_ms: int) -> Offset:
        """Write batches that have their offsets from the leader; the last offset in the log then.

        A partial batch at the end is left out, as a Fetch may bring one.
        """
        for batch in iter_batches(batches):
            header = BatchHeader(*_unpack_header(batch))
            self._check_replicated(batch, header)
            segment = self._active
            if (
                segment.size + header.size > self._segment_bytes
                or header.max_timestamp > segment.roll_timestamp
                or segment.index_full
                or header.last_offset > segment.last_indexable_offset
            ):
                segment = self._segment_for(header.size, header.last_offset, now_ms, at_offset=header.base_offset)
            if header.leader_epoch != self.leader_epochs.latest:
                self.leader_epochs.assign(header.leader_epoch, header.base_offset)
            segment.write(batch)
            if not segment.size:
                self._set_roll_timestamp(header.max_timestamp)
            segment.note(header.size, header.last_offset, header.max_timestamp, self._index_interval_bytes)
            self.log_end_offset = Offset(header.last_offset + 1)
            if header.producer_id >= 0:
                self._replay_producer(segment, header, batch)
        self._told_ms = now_ms
        return Offset(self.log_end_offset - 1)

    def advance_high_watermark(self, offset: int) -> bool:
        """Move it up to this offset, at most to the end of the log; whether it moved."""
        if offset <= self.high_watermark:
            return False
        if offset >= self.log_end_offset:
            if self.high_watermark == self.log_end_offset:
                return False
            self.high_watermark = self.log_end_offset
            self._hw_segment = self._active
            self._hw_position = self._active.size
            if self.producers.first_unstable_offset is not None:
                self.producers.high_watermark_advanced(self.high_watermark)
        else:
            self._place_high_watermark(offset)
        return True

    # Reading

    def read(self, start_offset: int, *, max_bytes: int, end_offset: int, minimum_one: bool) -> LogRead:
        """Whole batches from the one that holds `start_offset` on, none of which reaches `end_offset`.

        At most `max_bytes`, but with `minimum_one` never less than one whole batch. One segment at a time.
        """
        if start_offset > self.log_end_offset or start_offset < self.log_start_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {start_offset} is outside of {self.log_start_offset} to {self.log_end_offset}",
            )
        if start_offset < end_offset:
            number = self._segment_number(start_offset)
            while number < len(self.segments):
                segment = self.segments[number]
                position, first_size = segment.locate(start_offset)
                if first_size:
                    end = self._end_position(number, segment, end_offset)
                    if end - position > max_bytes:
                        if first_size <= max_bytes:
                            end = segment.boundary_at_most(position + max_bytes, floor=position + first_size)
                        else:
                            end = position + first_size if minimum_one else position
                    if end <= position:
                        break
                    return LogRead(segment.slice(position, end), segment.base_offset, position)
                number += 1
        return LogRead(b"", self._active.base_offset, self._active.size)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Timestamp and offset of the first record at least as late; None if there is none."""
        return timestamps.first_at_least(self.segments, timestamp, log_start_offset=self.log_start_offset)

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The largest timestamp and the offset of the first record that has it; None in a log without records."""
        return timestamps.largest(self.segments, log_start_offset=self.log_start_offset)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """See `LeaderEpochs.end_offset_for`."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Aborted transactions with records in this range."""
        found: list[AbortedTxn] = []
        for segment in self.segments[self._segment_number(start_offset) :]:
            aborted, complete = segment.txn_index.between(start_offset, end_offset)
            found += aborted
            if complete:
                break
        return found

    # Changing what is there

    def begin_epoch(self, epoch: LeaderEpoch) -> None:
        """This replica leads from here on."""
        self.leader_epochs.assign(epoch, self.log_end_offset)

    def maybe_roll(self, now_ms: int) -> bool:
        """Start a new segment if the active one is full, or older than `segment.ms`."""
        active = self._active
        if active.size and (active.size >= self._segment_bytes or active.index_full or self._is_time_to_roll(now_ms)):
            self.roll(now_ms)
            return True
        return False

    def roll(self, now_ms: int, at_offset: int | None = None) -> None:
        """Seal the active segment and start one at the end of the log."""
        base_offset = self.log_end_offset if at_offset is None else at_offset
        sealed = self._active
        if sealed.base_offset == base_offset:
            return
        self._write_snapshot()
        segment = Segment(self._disk, self.directory, base_offset, size=0, now_ms=now_ms, config=self._config)
        segment.create()
        sealed.seal()
        self._sealed_bytes += sealed.size
        self.segments.append(segment)
        self._bases.append(base_offset)
        self._active = segment

    def truncate_to(self, offset: int) -> bool:
        """Cut everything from this offset on; whether there was anything."""
        if offset >= self.log_end_offset:
            return False
        if offset < self._bases[0]:
            self.truncate_fully_and_start_at(offset)
            return True
        keep = bisect_right(self._bases, offset)
        removed = self.segments[keep:]
        self._drop_segments(keep, len(self.segments), self._told_ms)
        if removed:
            self._active = self.segments[-1]
            self._sealed_bytes -= self._active.size
            self._active.activate()
        self.log_end_offset = Offset(self._active.truncate(offset))
        if self.log_end_offset < self.log_start_offset:  # The first batch had records on both sides of the start.
            self.truncate_fully_and_start_at(self.log_start_offset)
        else:
            self._after_truncation()
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the next batch gets this offset."""
        self._drop_segments(0, len(self.segments), self._told_ms)
        segment = Segment(self._disk, self.directory, offset, size=0, now_ms=self._told_ms, config=self._config)
        segment.create()
        self.segments.append(segment)
        self._bases.append(offset)
        self._active = segment
        self._sealed_bytes = 0
        self.log_end_offset = self.log_start_offset = Offset(offset)
        self.leader_epochs.clear()
        self._after_truncation()

    def delete_records_before(self, offset: int) -> Offset:
        """Raise the log start offset (DeleteRecords, or a leader's word); whole segments go with `apply_retention`."""
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"records up to {offset} cannot be deleted: the high watermark is {self.high_watermark}",
            )
        if offset > self.log_start_offset:
            self.log_start_offset = Offset(offset)
            self.leader_epochs.truncate_from_start(offset)
        return self.log_start_offset

    def apply_retention(self, now_ms: int) -> int:
        """Delete the segments that may go by time, size and log start offset; how many."""
        count = retention.count_deletable(
            self.segments,
            self._config,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            log_end_offset=self.log_end_offset,
            now_ms=now_ms,
        )
        if count == len(self.segments):
            self.roll(now_ms)
        if count:
            self._drop_segments(0, count, now_ms)
            if self._bases[0] > self.log_start_offset:
                self.log_start_offset = Offset(self._bases[0])
                self.leader_epochs.truncate_from_start(self.log_start_offset)
            self._place_high_watermark(self.high_watermark)
        return count

    def purge_deleted(self, now_ms: int) -> int | None:
        """Unlink files whose `file.delete.delay.ms` is over; when the next ones are due."""
        return self._deletions.purge(now_ms)

    # Flushing and closing

    def flush_due(self, now_ms: int) -> bool:
        """Whether `flush.messages` or `flush.ms` asks for a sync; asked after every append."""
        unflushed = self.log_end_offset - self.recovery_point
        return unflushed >= self._flush_messages or (unflushed > 0 and now_ms - self._last_flush_ms >= self._flush_ms)

    def needs_flush(self, now_ms: int) -> bool:
        """Whether a sync is due, also because a sealed segment waits for it."""
        return self._active.base_offset > self.recovery_point or self.flush_due(now_ms)

    def flush_work(self) -> FlushWork:
        """What to sync so that everything up to the end of now survives a power loss; call it, then tell `flushed`."""
        self._last_flush_ms = self._told_ms
        first = self._segment_number(
            self.recovery_point - 1
        )  # Sealed since the last sync, if nothing else is new in it.
        # What is not synced yet is told by the recovery point, which moves once the work is done: work may be given up.
        begun_since = self.recovery_point if self._flushed_once else 0
        return FlushWork(
            self._disk,
            self.directory,
            self.segments[first:],
            self.log_end_offset,
            epochs=self.leader_epochs.path_if_changed_since(begun_since),
            names_changed=not self._flushed_once or self._active.base_offset >= begun_since,
        )

    def flushed(self, offset: int) -> None:
        """All below this offset is on the device."""
        self.recovery_point = max(self.recovery_point, min(offset, self.log_end_offset))
        self._flushed_once = True

    def close(self, *, durable: bool = True) -> None:
        """Write indexes and producer state, sync (unless told not to) and let go of all files."""
        self._active.write_indexes()
        self._write_snapshot()
        if durable and self.unflushed_messages:
            work = self.flush_work()
            work()
            self.flushed(work.offset)
        self.let_go()

    def let_go(self) -> None:
        """Close all files as they are: what remains to do on a directory that has failed."""
        for segment in self.segments:
            segment.close()
        self._deletions.close()

    def moved(self, directory: str) -> None:
        """The directory has been renamed."""
        self.directory = directory
        self.leader_epochs.moved(f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
        for segment in self.segments:
            segment.moved(directory)

    # Inside

    def _check_producer(
        self,
        batch: memoryview,
        origin: Origin,
        attributes: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        last_delta: int,
    ) -> KeptBatch | None:
        transactional = attributes & TRANSACTIONAL_BIT != 0
        if attributes & CONTROL_BIT:
            marker = read_end_txn_marker(batch)
            if marker is not None:
                self.producers.check_marker(producer_id, producer_epoch, marker.coordinator_epoch)
        elif origin is Origin.CLIENT:
            return self.producers.check(
                producer_id, producer_epoch, base_sequence, last_delta, transactional=transactional
            )
        else:
            self.producers.check_epoch(producer_id, producer_epoch, transactional=transactional)
        return None

    def _replay_producer(self, segment: Segment, header: BatchHeader, batch: memoryview) -> None:
        completed = self.producers.replay(header, lambda: batch)
        if completed is not None:
            if completed.aborted:
                segment.txn_index.append(self.producers.aborted_entry(completed))
            self.producers.complete(completed)

    def _check_replicated(self, batch: memoryview, header: BatchHeader) -> None:
        if header.magic != MAGIC or crc32c(batch[ATTRIBUTES_POSITION:]) != header.crc:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the leader's batch at {header.base_offset} is damaged")
        if header.base_offset < self.log_end_offset or header.last_offset_delta < 0:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"the leader's batch at {header.base_offset} does not follow on {self.log_end_offset}",
            )

    def _segment_for(self, size: int, last_offset: int, now_ms: int, at_offset: int | None = None) -> Segment:
        """The segment for a batch that the active one may not take; off the hot path."""
        if size > self._segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a batch of {size} bytes exceeds segment.bytes, which is {self._segment_bytes}",
            )
        if self._active.size or last_offset > self._active.last_indexable_offset:
            self.roll(now_ms, at_offset)
        return self._active

    def _set_roll_timestamp(self, first_timestamp: int) -> None:
        if first_timestamp >= 0:
            self._active.roll_timestamp = first_timestamp + self._config.segment_ms - self._roll_jitter_ms

    def _is_time_to_roll(self, now_ms: int) -> bool:
        active = self._active
        if active.roll_timestamp != LONG_MAX:
            return now_ms > active.roll_timestamp
        return now_ms - active.created_ms > self._config.segment_ms - self._roll_jitter_ms

    def _segment_number(self, offset: int) -> int:
        bases = self._bases
        if offset >= bases[-1]:
            return len(bases) - 1
        return max(bisect_right(bases, offset) - 1, 0)

    def _end_position(self, number: int, segment: Segment, end_offset: int) -> int:
        """Where in this segment the batches below `end_offset` end."""
        if end_offset >= self.log_end_offset:
            return segment.size
        if end_offset == self.high_watermark and segment is self._hw_segment:
            return self._hw_position
        if number + 1 < len(self._bases) and self._bases[number + 1] <= end_offset:
            return segment.size
        return segment.locate(end_offset)[0]

    def _place_high_watermark(self, offset: int) -> None:
        offset = max(self.log_start_offset, min(offset, self.log_end_offset))
        segment = self.segments[self._segment_number(offset)]
        self.high_watermark = Offset(offset)
        self._hw_segment = segment
        self._hw_position = segment.size if offset == self.log_end_offset else segment.locate(offset)[0]
        self.producers.high_watermark_advanced(offset)

    def _drop_segments(self, start: int, end: int, now_ms: int) -> None:
        deadline_ms = now_ms + self._config.file_delete_delay_ms
        for segment in self.segments[start:end]:
            snapshot = recovery.snapshot_path(self.directory, segment.base_offset)
            self._deletions.add(segment, [snapshot] if self._disk.exists(snapshot) else [], deadline_ms)
            if segment is not self._active:
                self._sealed_bytes -= segment.size
        del self.segments[start:end]
        del self._bases[start:end]

    def _after_truncation(self) -> None:
        """Bring everything that follows from the log's content in line with it."""
        self.recovery_point = min(self.recovery_point, self.log_end_offset)
        self.leader_epochs.truncate_from_end(self.log_end_offset)
        loaded = recovery.Loaded(self.segments, self.log_end_offset, None)
        self._snapshot_offset = recovery.load_producers(
            self._disk,
            self.directory,
            self.producers,
            loaded,
            log_start_offset=self.log_start_offset,
            now_ms=self._told_ms,
        )
        self._active.roll_timestamp = LONG_MAX
        self._set_roll_timestamp(self._active.first_timestamp())
        self._place_high_watermark(min(self.high_watermark, self.log_end_offset))

    def _write_snapshot(self) -> None:
        """Keep the producers' state as of the end of the log, unless it is on disk already."""
        if self.log_end_offset > self._snapshot_offset:
            path = recovery.snapshot_path(self.directory, self.log_end_offset)
            self._disk.write_file(path, self.producers.snapshot())
            self._snapshot_offset = self.log_end_offset
