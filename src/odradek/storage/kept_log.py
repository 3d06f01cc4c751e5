"""What a log consists of, and all that is done with it besides appending and reading: how it is rolled, cut, shortened
by retention, brought to the device and closed.

`Log` is built upon it, and is the same object: an append must not pay for the way from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from odradek.ids import LeaderEpoch, Offset, Uuid
from odradek.ports import DISK_FULL, Disk
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage import recovery, retention, validation
from odradek.storage.config import LONG_MAX, LogConfig
from odradek.storage.file_names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, snapshot_path
from odradek.storage.flushing import FlushWork
from odradek.storage.segment import Segment
from odradek.storage.segments import Segments
from odradek.storage.validation import Origin

_NO_CRC = -1


class KeptLog:
    """The state of one partition's log in one directory."""

    __slots__ = (
        "_config",
        "_disk",
        "_draw",
        "_flush_messages",
        "_flush_ms",
        "_flushed_once",
        "_index_interval_bytes",
        "_last_flush_ms",
        "_looks_inside",
        "_max_message_bytes",
        "_max_plain_bytes",
        "_max_timestamp_ahead_ms",
        "_max_timestamp_behind_ms",
        "_overstated",
        "_segment_bytes",
        "_segments",
        "_snapshot_offset",
        "_told_ms",
        "_took_long",
        "_verbatim",
        "cleaned_offset",
        "directory",
        "flushes_on_append",
        "high_watermark",
        "keep_cleaned_offset",
        "keep_log_start",
        "keep_recovery_point",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "min_insync_replicas",
        "partition",
        "producers",
        "recovery_point",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        opened: recovery.Opened,
        *,
        topic: str,
        partition: int,
        topic_id: Uuid,
        config: LogConfig,
        now_ms: int,
        high_watermark: int | None,
        recovery_point: int,
        draw: Callable[[int], int],
    ) -> None:
        """Use `Log.open`."""
        self._disk = disk
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self._segments = Segments(disk, directory, opened.loaded.segments)
        self.log_start_offset = Offset(opened.log_start_offset)
        self.log_end_offset = Offset(opened.loaded.log_end_offset)
        is_overstated = recovery_point > opened.loaded.log_end_offset
        # From before a truncation, then: nobody knows how much of what came since is synced but for what was sealed.
        self.recovery_point = self._segments.active.base_offset if is_overstated else recovery_point
        self._overstated = recovery_point if is_overstated else 0
        """A recovery point that was true before the log was cut, and that its checkpoint may still tell; 0 if none."""
        self.keep_recovery_point: Callable[[], None] = lambda: None
        """To be called, and to have put the recovery point on the device, before a checkpoint that tells a higher one
        could have unsynced segments be trusted;"""
        self.keep_log_start: Callable[[], None] = lambda: None
        """likewise for the log start offset, before the log begins anew below it."""
        self.cleaned_offset: int = 0
        """Below it every key has but one record, if the log is compacted;"""
        self.keep_cleaned_offset: Callable[[], None] = lambda: None
        """to be called when it has gone back, since what comes instead of what was cut is not clean."""
        self.leader_epochs = opened.leader_epochs
        self.producers = opened.producers
        self._snapshot_offset = opened.snapshot_offset
        self._told_ms = now_ms  # The time of the last append: recent enough for what has no time of its own.
        self._last_flush_ms = now_ms
        self._flushed_once = recovery_point > 0  # Then an earlier life has synced what is written but once.
        self._draw = draw
        self._took_long = _NO_CRC
        """The checksum of the last batch that proved to take long when it was unpacked: its request tries every way to
        be done at once, and it is not to be unpacked for each of them."""
        self.config = config
        self._draw_roll_jitter()
        self._set_roll_timestamp(self._segments.active.first_timestamp())
        self.high_watermark = self.log_start_offset
        self._place_high_watermark(self.log_start_offset if high_watermark is None else high_watermark)

    def __repr__(self) -> str:
        return f"Log({self.topic}-{self.partition}, {self.log_start_offset}..{self.log_end_offset})"

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        """What every append compares with is kept ready; `segment.ms` counts for the active segment, too."""
        self._config = config
        self._verbatim = tuple(validation.is_verbatim(config, origin) for origin in Origin)
        self._max_message_bytes = config.max_message_bytes
        self._looks_inside = validation.looks_inside(config)
        self._max_timestamp_ahead_ms = validation.most_ahead_ms(config)
        self._max_timestamp_behind_ms = config.message_timestamp_before_max_ms
        self._segment_bytes = config.segment_bytes
        self._index_interval_bytes = config.index_interval_bytes
        self.min_insync_replicas = config.min_insync_replicas
        self._flush_messages = config.flush_messages
        self._flush_ms = config.flush_ms
        self.flushes_on_append = config.flush_messages != LONG_MAX or config.flush_ms != LONG_MAX
        plain = self._verbatim[Origin.CLIENT] and not self.flushes_on_append
        self._max_plain_bytes = config.max_message_bytes if plain else 0
        self._set_roll_timestamp(self._segments.active.rolls_from_ms)

    @property
    def segments(self) -> Sequence[Segment]:
        """Oldest first; the last one is active."""
        return self._segments.all

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def last_stable_offset(self) -> Offset:
        """What a reader at read_committed may see ends here.

        Never before the log's start, though a transaction that is still open may have begun before it.
        """
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable > self.high_watermark:
            return self.high_watermark
        return Offset(max(unstable, self.log_start_offset))

    @property
    def cuts(self) -> int:
        """How often it was cut since it was opened: what was learnt of it before may not hold after."""
        return self._segments.cuts

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    # Changing what is there

    def begin_epoch(self, epoch: LeaderEpoch) -> None:
        """This replica leads from here on."""
        self.leader_epochs.assign(epoch, self.log_end_offset)

    def maybe_roll(self, now_ms: int) -> bool:
        """Start a new segment if the active one is full, or older than `segment.ms`."""
        active = self._segments.active
        if active.size and (active.size >= self._segment_bytes or active.index_full or self._is_time_to_roll(now_ms)):
            self.roll(now_ms)
            return True
        return False

    def roll(self, now_ms: int, at_offset: int | None = None) -> None:
        """Seal the active segment and start one at the end of the log."""
        base_offset = self.log_end_offset if at_offset is None else at_offset
        if base_offset != self._segments.active.base_offset:
            if self._overstated > base_offset:  # A start would trust the segment that is sealed now.
                self.keep_recovery_point()
                self._overstated = 0
            self._write_snapshot()
            self._segments.start(base_offset, self._config, now_ms)
            self._draw_roll_jitter()

    def truncate_to(self, offset: int) -> bool:
        """Cut everything from this offset on; whether there was anything."""
        if offset >= self.log_end_offset:
            # An epoch that began here and never got a record is not part of the history, or nobody could share it.
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset < self._segments.first_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        deadline_ms = self._told_ms + self._config.file_delete_delay_ms
        self.log_end_offset = Offset(self._segments.truncate(offset, deadline_ms=deadline_ms))
        if self.log_end_offset < self.log_start_offset:  # The first batch had records on both sides of the start.
            self.truncate_fully_and_start_at(self.log_start_offset)
        else:
            self._after_truncation()
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the next batch gets this offset."""
        if offset < self.log_start_offset:  # A start would take the old one for this log's, once it is that long.
            before, self.log_start_offset = self.log_start_offset, Offset(offset)
            try:
                self.keep_log_start()
            except OSError:
                self.log_start_offset = before
                raise
        self._segments.start_over(offset, self._config, self._told_ms)
        self._draw_roll_jitter()
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
            self._roll_what_goes(now_ms)
        if count:
            self._segments.drop_first(count, deadline_ms=now_ms + self._config.file_delete_delay_ms)
            if self._segments.first_offset > self.log_start_offset:
                self.log_start_offset = Offset(self._segments.first_offset)
                self.leader_epochs.truncate_from_start(self.log_start_offset)
            self._place_high_watermark(self.high_watermark)
        return count

    def replace_segments(self, old: Sequence[Segment], *, size: int, now_ms: int) -> bool:
        """Put what a cleaning has left of these segments in their place, as `Segments.replace` does it."""
        cleaned = Segment(
            self._disk,
            self.directory,
            old[0].base_offset,
            size=size,
            now_ms=old[-1].created_ms,
            config=self._config,
        )
        return self._segments.replace(old, cleaned, deadline_ms=now_ms + self._config.file_delete_delay_ms)

    def purge_deleted(self, now_ms: int) -> int | None:
        """Unlink files whose `file.delete.delay.ms` is over; when the next ones are due."""
        return self._segments.purge_deleted(now_ms)

    # Flushing and closing

    def flush_due(self, now_ms: int) -> bool:
        """Whether `flush.messages` or `flush.ms` asks for a sync; asked after every append."""
        unflushed = self.log_end_offset - self.recovery_point
        return unflushed >= self._flush_messages or (unflushed > 0 and now_ms - self._last_flush_ms >= self._flush_ms)

    def needs_flush(self, now_ms: int) -> bool:
        """Whether a sync is due, also because a sealed segment waits for it, or the file that says whose log this is.

        A power loss that took that file would take all the rest: nobody could tell it from a predecessor's.
        """
        if not self._flushed_once and self.log_end_offset > self._segments.first_offset:
            return True
        return self._segments.active.base_offset > self.recovery_point or self.flush_due(now_ms)

    def flush_work(self, *, epochs: bool = True) -> FlushWork:
        """What to sync so that everything up to the end of now survives a power loss; call it, then tell `flushed`.

        Without `epochs` their file is left as it is: for a log that is read from its start after a crash.
        """
        self._last_flush_ms = self._told_ms
        # What is not synced yet is told by the recovery point, which moves once the work is done: work may be given up.
        # The segment that ends there counts too, since it may have been sealed after its last batch was synced.
        first = self._segments.number_of(self.recovery_point - 1)
        return FlushWork(
            self._disk,
            self.directory,
            list(self.segments[first:]),
            self._segments,
            self.log_end_offset,
            self._segments.cuts,
            epochs=self.leader_epochs,
            epochs_content=self.leader_epochs.unsaved(self.log_end_offset) if epochs else None,
            # A torn topic id would make the directory look like another topic's, whatever else in it is whole.
            files=[] if self._flushed_once else [f"{self.directory}/{PARTITION_METADATA}"],
            names_changed=not self._flushed_once
            or self._segments.active.base_offset >= self.recovery_point
            or self._segments.active.txn_index.unsynced,
        )

    def flushed(self, offset: int) -> None:
        """All below this offset is on the device."""
        self.recovery_point = max(self.recovery_point, min(offset, self.log_end_offset))
        self._flushed_once = True

    def close(self, *, durable: bool = True) -> None:
        """Write indexes and producer state, sync (unless told not to) and let go of all files.

        What nobody has changed since it was opened stays untouched.
        """
        self.give_back_room()
        self._segments.active.maybe_write_indexes()
        self._write_snapshot()
        if durable and self.unflushed_messages:
            work = self.flush_work()
            work()
            self.flushed(work.offset)
        self.leader_epochs.save(self.log_end_offset)
        self.let_go()

    def give_back_room(self) -> None:
        """Let others have what is reserved for it, until it grows again."""
        self._segments.active.give_back_room()

    def let_go(self) -> None:
        """Close all files as they are: what remains to do on a directory that has failed."""
        self._segments.close()

    def moved(self, directory: str) -> None:
        """The directory has been renamed."""
        self.directory = directory
        self.leader_epochs.moved(f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
        self._segments.moved(directory)

    # Inside

    def _segment_for(self, size: int, last_offset: int, now_ms: int, at_offset: int | None = None) -> Segment:
        """The segment for a batch that the active one may not take; off the hot path."""
        if size > self._segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a batch of {size} bytes exceeds segment.bytes, which is {self._segment_bytes}",
            )
        if self._segments.active.size or last_offset > self._segments.active.last_indexable_offset:
            self.roll(now_ms, at_offset)
        return self._segments.active

    def _roll_what_goes(self, now_ms: int) -> None:
        """Start an empty segment behind one that is about to be deleted, also where there is no room for what is
        written about it: it is the deletion that will make some.

        Indexes of what goes are of no use to anybody. The producers' state is written by the next roll, or at the end;
        a crash before that forgets producers whose batches have all expired.
        """
        try:
            self.roll(now_ms)
        except OSError as failure:
            if failure.errno not in DISK_FULL:
                raise
            self._segments.start(self.log_end_offset, self._config, now_ms, with_indexes=False)
            self._draw_roll_jitter()

    def _draw_roll_jitter(self) -> None:
        """Once for each segment, as Kafka does: another `segment.jitter.ms` counts from the next one on."""
        jitter_ms = min(self._config.segment_jitter_ms, self._config.roll_ms)
        self._segments.active.roll_jitter_ms = self._draw(jitter_ms) if jitter_ms > 0 else 0

    def _set_roll_timestamp(self, first_timestamp: int) -> None:
        """The active segment's first batch is of this time, if it has one."""
        active = self._segments.active
        active.rolls_from_ms = first_timestamp
        if first_timestamp >= 0:
            active.roll_timestamp = first_timestamp + self._config.roll_ms - active.roll_jitter_ms
        else:
            active.roll_timestamp = LONG_MAX

    def _is_time_to_roll(self, now_ms: int) -> bool:
        active = self._segments.active
        if active.roll_timestamp != LONG_MAX:
            return now_ms > active.roll_timestamp
        return now_ms - active.created_ms > self._config.roll_ms - active.roll_jitter_ms

    def _place_high_watermark(self, offset: int) -> None:
        offset = max(self.log_start_offset, min(offset, self.log_end_offset))
        self.high_watermark = Offset(offset)
        if offset == self.log_end_offset:
            self._segments.mark_end(offset)
        else:
            self._segments.mark(offset)
        self.producers.high_watermark_advanced(offset)

    def _after_truncation(self) -> None:
        """Bring everything that follows from the log's content in line with it."""
        if self.recovery_point > self.log_end_offset:
            self._overstated = max(self._overstated, self.recovery_point)
            self.recovery_point = self.log_end_offset
        if self.cleaned_offset > self.log_end_offset:
            self.cleaned_offset = self.log_end_offset
            self.keep_cleaned_offset()
        self.leader_epochs.truncate_from_end(self.log_end_offset)
        try:
            self.leader_epochs.save(self.log_end_offset)
        except OSError as failure:
            if failure.errno not in DISK_FULL:
                raise  # There may be no room even for that; the next flush writes it, or recovery learns it anew.
        ended = self.producers.unreplicated(self.log_end_offset)
        self._snapshot_offset = recovery.load_producers(
            self._disk,
            self.directory,
            self.producers,
            recovery.Loaded(self._segments.all, self.log_end_offset, None),
            log_start_offset=self.log_start_offset,
            now_ms=self._told_ms,
        )
        self.producers.stay_unreplicated(ended)
        self._set_roll_timestamp(self._segments.active.first_timestamp())
        self._place_high_watermark(min(self.high_watermark, self.log_end_offset))

    def _write_snapshot(self) -> None:
        """Keep the producers' state as of the end of the log, unless it is on disk already."""
        if self.log_end_offset > self._snapshot_offset:
            path = snapshot_path(self.directory, self.log_end_offset)
            try:
                self._disk.write_file(path, self.producers.snapshot())
            except OSError:
                with suppress(OSError):  # Half of it is of no use, and takes what room there is.
                    self._disk.unlink(path)
                raise
            self._snapshot_offset = self.log_end_offset
