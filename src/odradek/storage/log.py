"""One replica's log: batches in segments, appended at the end and read from anywhere.

Everything here is synchronous and belongs to one thread. An append costs one header, one checksum and one write; state
changes only after the write has succeeded, so an error leaves the log as it was.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeAlias

from odradek.ids import NO_TIMESTAMP, Offset, Uuid
from odradek.ports import Disk, FileSlice
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from odradek.protocol.records.check import TakesLong, check_records
from odradek.protocol.records.compression import Compression
from odradek.protocol.records.control import read_end_txn_marker
from odradek.protocol.records.crc import crc32c
from odradek.protocol.records.native import check
from odradek.storage import recovery, timestamps, validation
from odradek.storage.config import LogConfig
from odradek.storage.leader_epochs import EpochEnd
from odradek.storage.producer_state import Producers, ProducerSettings, Verification
from odradek.storage.replicated_log import ReplicatedLog
from odradek.storage.timestamps import TimeSearch
from odradek.storage.txn_index import AbortedTxn
from odradek.storage.validation import SMALLEST_RECORD, Examined, Origin
from odradek.values import value

_patch = struct.Struct(">qii").pack_into
"""Base offset, batch length, leader epoch: the start of a header."""

_unpack_plain = struct.Struct(">qi4xBIHiqqqhii").unpack_from
"""Of a header what a leader looks at: all but the leader epoch."""

_unpack_max_timestamp = struct.Struct(">35xq").unpack_from

Transaction: TypeAlias = Verification | int | None
"""What an append brings along: what it asked the coordinator with, if it may begin a transaction; and a marker the
`transaction.version` of the transaction that it ends."""

_LARGEST_AT_ONCE = validation.AT_ONCE_BYTES + HEADER_SIZE
_LARGEST_CODEC = int(Compression.ZSTD)
NOT_PLAIN = -1


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


class Log(ReplicatedLog):
    """The log of one partition in one directory."""

    __slots__ = ()

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
        producers: ProducerSettings | None = None,
        draw: Callable[[int], int] = lambda bound: 0,
        on_damage: Callable[[str], None] = lambda what: None,
    ) -> Log:
        """Open the directory's log, or make an empty one.

        `recovery_point`, `log_start_offset` and `high_watermark` come from the checkpoints, `clean` says that the last
        shutdown was: otherwise torn tails are cut and indexes and producer state rebuilt. `draw(n)` is a random number
        below n, for the jitter of time-based rolling. `on_damage` is as in `recovery.open_directory`.
        """
        opened = recovery.open_directory(
            disk,
            directory,
            topic_id=topic_id,
            config=config,
            now_ms=now_ms,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean=clean,
            producers=Producers(producers),
            on_damage=on_damage,
        )
        return cls(
            disk,
            directory,
            opened,
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            config=config,
            now_ms=now_ms,
            high_watermark=high_watermark,
            recovery_point=recovery_point,
            draw=draw,
        )

    # Appending

    def append_sole_replica(self, batch: memoryview, leader_epoch: int, now_ms: int) -> int:
        """`append_as_leader` of a client's batch to a partition's only replica, and so committed; its base offset.

        Only for a batch as most are, with nothing to begin and nothing to change: else `NOT_PLAIN`, and nothing was
        done. Nor was it where `TakesLong` is raised. (Hottest: a producer that waits for each answer finds the
        processor cold, and every line costs it.)
        """
        try:
            (
                given_offset,
                length,
                magic,
                crc,
                attributes,
                last_delta,
                base_timestamp,
                max_timestamp,
                producer_id,
                producer_epoch,
                base_sequence,
                count,
            ) = _unpack_plain(batch)
        except struct.error:
            return NOT_PLAIN
        size = len(batch)
        base_offset = self.log_end_offset
        last_offset = base_offset + last_delta
        segment = self._segments.active
        position = segment.size
        if (
            length + LENGTH_OVERHEAD != size
            or magic != MAGIC
            or attributes > _LARGEST_CODEC  # One of the flags is set, or the codec is none.
            or count != last_delta + 1
            or not 0 < count * SMALLEST_RECORD <= size <= self._max_plain_bytes
            or given_offset
            or max_timestamp > segment.roll_timestamp
            or not 0 < position <= self._segment_bytes - size
            or segment.index_full
            or last_offset > segment.last_indexable_offset
            or leader_epoch != self.leader_epochs.latest
            or crc32c(batch[ATTRIBUTES_POSITION:]) != crc
        ):
            return NOT_PLAIN
        highest = now_ms + self._max_timestamp_ahead_ms
        if not self._looks_inside:
            if max_timestamp > highest:
                return NOT_PLAIN
        elif attributes:
            if max_timestamp != self._newest(batch, attributes, base_timestamp, count, now_ms, crc):
                return NOT_PLAIN
        elif size > _LARGEST_AT_ONCE:
            raise TakesLong
        elif max_timestamp != check(
            batch[HEADER_SIZE:], base_timestamp, count, 0, now_ms - self._max_timestamp_behind_ms, highest
        ):
            return NOT_PLAIN
        producers = self.producers
        if producer_id >= 0 and (
            base_sequence < 0
            or producers.check(producer_id, producer_epoch, base_sequence, last_delta, False) is not None
        ):
            return NOT_PLAIN
        _patch(batch, 0, base_offset, length, leader_epoch)
        segment.write(batch)
        segment.note(size, last_offset, max_timestamp, self._index_interval_bytes)
        self._told_ms = now_ms
        self.log_end_offset = self.high_watermark = end_offset = Offset(last_offset + 1)
        if producers.first_unstable_offset is not None:
            producers.high_watermark_advanced(end_offset)
        if producer_id >= 0:
            producers.appended(
                producer_id, producer_epoch, base_sequence, base_offset, last_delta, max_timestamp, False
            )
        return base_offset

    def append_as_leader(
        self,
        batch: memoryview,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        examined: Examined | None = None,
        transaction: Transaction = None,
    ) -> AppendInfo:
        """Give exactly one batch the next offsets and write it; raises `KafkaError`, and then nothing has changed.

        A client's batch that is large raises `TakesLong` in the same way, unless it was `examined` before.

        The view is patched in place, so it must be writable. (Hot: one header, one checksum, one write.)
        """
        try:
            (
                given_offset,
                length,
                magic,
                crc,
                attributes,
                last_delta,
                base_timestamp,
                max_timestamp,
                producer_id,
                producer_epoch,
                base_sequence,
                count,
            ) = _unpack_plain(batch)
        except struct.error:
            raise validation.refuse_short(batch) from None
        if length + LENGTH_OVERHEAD != len(batch):
            batch = validation.only_batch(batch)
        size = len(batch)
        if (
            magic != MAGIC
            or count != last_delta + 1
            or count <= 0
            or given_offset
            or size > self._max_message_bytes
            or attributes & CONTROL_BIT
            or attributes & COMPRESSION_MASK > _LARGEST_CODEC
            or (producer_id >= 0 and base_sequence < 0)
            or count * SMALLEST_RECORD > size
        ):
            validation.check_header(batch, self._config, origin)
        if crc32c(batch[ATTRIBUTES_POSITION:]) != crc:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a batch's checksum does not match its content")
        log_append_time_ms = NO_TIMESTAMP
        if examined is not None and examined.config is self._config:
            if examined.error is not None:
                raise examined.error
            batch = examined.batch
            size = len(batch)
            length = size - LENGTH_OVERHEAD
            (max_timestamp,) = _unpack_max_timestamp(batch)
            if self._config.message_timestamp_type == validation.LOG_APPEND_TIME:
                log_append_time_ms = max_timestamp
        elif self._verbatim[origin] and not attributes & TIMESTAMP_TYPE_BIT:
            if origin is Origin.CLIENT and self._looks_inside:
                codec = attributes & COMPRESSION_MASK
                newest = self._newest(batch, codec, base_timestamp, count, now_ms, crc)
                if newest != max_timestamp:
                    validation.set_timestamp(batch, attributes, newest)
                    max_timestamp = newest
            elif max_timestamp > now_ms + self._max_timestamp_ahead_ms:
                validation.check_timestamp(max_timestamp, self._config, now_ms)
        else:
            batch = self._prepared(batch, origin, now_ms, crc)
            size = len(batch)
            length = size - LENGTH_OVERHEAD
            (max_timestamp,) = _unpack_max_timestamp(batch)
            if self._config.message_timestamp_type == validation.LOG_APPEND_TIME:
                log_append_time_ms = now_ms

        base_offset = self.log_end_offset
        last_offset = base_offset + last_delta
        producers = self.producers
        if producer_id >= 0:
            transactional = attributes & TRANSACTIONAL_BIT != 0
            if origin is Origin.CLIENT:
                if transactional:
                    earlier = producers.check_transactional(
                        producer_id, producer_epoch, base_sequence, last_delta, transaction
                    )
                else:
                    earlier = producers.check(producer_id, producer_epoch, base_sequence, last_delta, False)
                if earlier is not None:
                    return AppendInfo(
                        earlier.first_offset, earlier.last_offset, earlier.timestamp, self.log_start_offset, True
                    )
            else:
                if attributes & CONTROL_BIT:
                    self._check_marker(batch, producer_id, producer_epoch, transaction)
                else:
                    if transactional:
                        producers.check_verified(producer_id, producer_epoch, transaction)
                    producers.check_epoch(producer_id, producer_epoch, transactional=transactional)
        segment = self._segments.active
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
                self._replay_marker(segment, batch)
            else:
                producers.appended(
                    producer_id, producer_epoch, base_sequence, base_offset, last_delta, max_timestamp, transactional
                )
        return AppendInfo(base_offset, last_offset, log_append_time_ms, self.log_start_offset, False)

    def examine(self, batch: memoryview, now_ms: int) -> Examined | None:
        """Look into a batch of one's own before its append, as `validation.examine`; it touches nothing of the log."""
        return validation.examine(batch, self._config, now_ms)

    def wrote_as_it_came(self, batch: memoryview) -> bool:
        """Whether a client's batch that was appended is now, with its place in it, what the log has; else that was made
        from it."""
        return (
            self._verbatim[Origin.CLIENT]
            and not batch[ATTRIBUTES_POSITION + 1] & TIMESTAMP_TYPE_BIT
            and int.from_bytes(batch[8:12]) + LENGTH_OVERHEAD == len(batch)
        )

    def advance_high_watermark(self, offset: int) -> bool:
        """Move it up to this offset, at most to the end of the log; whether it moved."""
        if offset <= self.high_watermark:
            return False
        end_offset = self.log_end_offset
        if offset < end_offset:
            self.high_watermark = Offset(offset)
            self._segments.mark(offset)
        elif self.high_watermark == end_offset:
            return False
        else:
            self.high_watermark = end_offset
            self._segments.mark_end(end_offset)
        if self.producers.first_unstable_offset is not None:
            self.producers.high_watermark_advanced(self.high_watermark)
        return True

    # Reading

    def read(self, start_offset: int, max_bytes: int, end_offset: int, minimum_one: bool) -> LogRead:
        """Whole batches from the one that holds `start_offset` on, none of which reaches `end_offset`.

        At most `max_bytes`, but with `minimum_one` never less than one whole batch. One segment at a time.
        """
        if start_offset > self.log_end_offset or start_offset < self.log_start_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {start_offset} is outside of {self.log_start_offset} to {self.log_end_offset}",
            )
        if start_offset < end_offset:
            found = self._segments.find(start_offset, max_bytes, end_offset, minimum_one)
            if found is not None:
                segment, position, end = found
                return LogRead(segment.slice(position, end), segment.base_offset, position)
        active = self._segments.active
        return LogRead(b"", active.base_offset, active.size)

    def read_to_end(self, start_offset: int, max_bytes: int, minimum_one: bool) -> FileSlice | bytes:
        """The records of `read` up to the end of the log, which is what followers want.

        (Hot: nearly all of them have kept up, and get the last few batches of the active segment.)
        """
        segment = self._segments.active
        if segment.base_offset <= start_offset >= self.log_start_offset:
            position, first_size = segment.locate(start_offset)
            size = segment.size - position
            if first_size and size <= max_bytes:
                return FileSlice(segment.file, position, size)
        return self.read(start_offset, max_bytes, self.log_end_offset, minimum_one).records

    def search_by_time(self, timestamp: int, from_offset: int) -> TimeSearch | None:
        """Where the first record from this offset on that is as late may be; None if there is none."""
        return timestamps.next_search(self.segments, timestamp, from_offset=from_offset, end_offset=self.log_end_offset)

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp in the log, -1 if it has none."""
        return timestamps.largest(self.segments)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """See `LeaderEpochs.end_offset_for`."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def aborted_in(self, start_offset: int, read: LogRead) -> list[AbortedTxn]:
        """Aborted transactions that may have records in what was read from that offset on.

        As with Kafka, those up to the next batch that the segment's index knows, or else to the end of the segment.
        """
        if not read.records:
            return []
        number = self._segments.number_of(read.segment_base_offset)
        end_offset = self.segments[number].indexed_offset_from(read.position + len(read.records))
        if end_offset is None:
            is_last = number + 1 == len(self.segments)
            end_offset = self.log_end_offset if is_last else self.segments[number + 1].base_offset
        return self.aborted_transactions(start_offset, end_offset)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Aborted transactions with records in this range."""
        found: list[AbortedTxn] = []
        for segment in self.segments[self._segments.number_of(start_offset) :]:
            aborted, complete = segment.txn_index.between(start_offset, end_offset)
            found += aborted
            if complete:
                break
        return found

    # Inside

    def _newest(self, batch: memoryview, codec: int, base_timestamp: int, count: int, now_ms: int, crc: int) -> int:
        """The largest timestamp of a client's records; `KafkaError` if they are not as they must be."""
        if crc == self._took_long:
            raise TakesLong
        try:
            return check_records(
                batch[HEADER_SIZE:],
                codec,
                base_timestamp=base_timestamp,
                count=count,
                flags=0,
                lowest=now_ms - self._max_timestamp_behind_ms,
                highest=now_ms + self._max_timestamp_ahead_ms,
                limit=validation.most_decompressed(self._config),
                at_once=validation.AT_ONCE_BYTES,
            )
        except TakesLong:
            self._took_long = crc
            raise

    def _prepared(self, batch: memoryview, origin: Origin, now_ms: int, crc: int) -> memoryview:
        if crc == self._took_long and origin is Origin.CLIENT:
            raise TakesLong
        try:
            return validation.prepare(batch, self._config, origin, now_ms)
        except TakesLong:
            self._took_long = crc
            raise

    def _check_marker(self, batch: memoryview, producer_id: int, producer_epoch: int, transaction: Transaction) -> None:
        marker = read_end_txn_marker(batch)
        if marker is not None:
            version = transaction if isinstance(transaction, int) else 0
            self.producers.check_marker(
                producer_id, producer_epoch, marker.coordinator_epoch, transaction_version=version
            )
