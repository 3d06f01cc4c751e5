"""`__cluster_metadata-0` on disk: the log, its snapshots and `quorum-state`. Nobody else touches that directory.

What the raft core must know of the log it asks here (`LogView`); what is appended counts once it is synced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from odradek.ids import METADATA_TOPIC_ID, NO_EPOCH, LeaderEpoch, Offset
from odradek.metadata.bootstrap import METADATA_DIRECTORY
from odradek.metadata.raft.amnesia import AMNESIA_FILE, Amnesia, decode_amnesia, encode_amnesia
from odradek.metadata.raft.quorum_state import (
    QUORUM_STATE_FILE,
    QuorumState,
    decode_quorum_state,
    encode_quorum_state,
)
from odradek.metadata.raft.snapshot import Snapshot, SnapshotId
from odradek.metadata.raft.voters import Membership
from odradek.metadata.topic_names import METADATA_TOPIC
from odradek.ports import DISK_FULL, World
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.batch import BatchHeader, iter_batches, read_header
from odradek.server.quorum.recent_batches import RecentBatches
from odradek.server.quorum.snapshot_files import SnapshotFiles
from odradek.storage.checkpoints import replace_file
from odradek.storage.config import LogConfig
from odradek.storage.leader_epochs import EpochEnd
from odradek.storage.log import Log

log = logging.getLogger(__name__)

_READ_BYTES = 1 << 20


class BadMetadataLog(Exception):
    """The node cannot start on what is in its metadata directory; the message is for a person."""


class MetadataLog:
    """The files of one metadata directory."""

    def __init__(self, world: World, metadata_log_dir: str, *, segment_bytes: int, segment_ms: int) -> None:
        self.directory = f"{metadata_log_dir}/{METADATA_DIRECTORY}"
        self.snapshots = SnapshotFiles(world, self.directory)
        self._world = world
        self._metadata_log_dir = metadata_log_dir
        self._config = _log_config(segment_bytes, segment_ms)
        self.device = asyncio.Lock()
        """A truncation must not come between a sync and the note of what it has kept."""
        self._log: Log
        self._recent = RecentBatches()
        self._is_full = False

    def open(self, *, clean: bool) -> tuple[SnapshotId, Snapshot] | None:
        """Load what is there: the newest snapshot that is whole, or None. BadMetadataLog where a part is missing."""
        disk = self._world.disk
        if not disk.exists(self.directory):
            disk.make_directory(self.directory)
            disk.sync_directory(self._metadata_log_dir)  # Syncing what is in it would not keep its name.
        loaded = self.snapshots.load()
        self._log = Log.open(
            disk,
            self.directory,
            topic=METADATA_TOPIC,
            partition=0,
            topic_id=METADATA_TOPIC_ID,
            config=self._config,
            now_ms=self._world.clock.now_ms(),
            clean=clean,
        )
        start_offset = loaded[0].end_offset if loaded is not None else Offset(0)
        if self._log.log_start_offset > start_offset:
            raise BadMetadataLog(
                f"{self.directory} begins at offset {self._log.log_start_offset}, and no snapshot that is whole "
                "covers what came before."
            )
        if loaded is not None and self._is_behind(loaded[0]):
            self._log.truncate_fully_and_start_at(start_offset)
        return loaded

    def _is_behind(self, snapshot_id: SnapshotId) -> bool:
        """Whether the log goes back to before the snapshot: the node stopped before it could let go of the older log,
        or a power loss brought back the epochs of that one.

        One of an older epoch may even be longer, but then it is another history.
        """
        end_offset, epoch = self._log.log_end_offset, self._log.leader_epochs.latest
        if epoch == NO_EPOCH and self._log.log_start_offset == end_offset == snapshot_id.end_offset:
            return False  # As it was begun.
        return (epoch, end_offset) < (snapshot_id.epoch, snapshot_id.end_offset)

    # What the core asks.

    @property
    def log_start_offset(self) -> Offset:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        return self._log.log_end_offset

    @property
    def last_epoch(self) -> LeaderEpoch:
        latest = self._log.leader_epochs.latest
        if latest != NO_EPOCH:
            return latest
        newest = self.snapshots.newest
        return LeaderEpoch(0) if newest is None else newest.epoch

    def end_of_epoch(self, epoch: LeaderEpoch) -> EpochEnd:
        return self._log.end_offset_for_epoch(epoch)

    @property
    def oldest_snapshot(self) -> SnapshotId | None:
        return self.snapshots.oldest

    @property
    def newest_snapshot(self) -> SnapshotId | None:
        return self.snapshots.newest

    @property
    def high_watermark(self) -> Offset:
        return self._log.high_watermark

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    # `quorum-state`.

    def read_state(self) -> QuorumState | None:
        """None where there is no such file: this node has promised nothing, or has lost what it promised."""
        path = f"{self.directory}/{QUORUM_STATE_FILE}"
        if not self._world.disk.exists(path):
            return None
        return decode_quorum_state(self._world.disk.read_file(path))

    def write_state(self, state: QuorumState, membership: Membership) -> None:
        """On the device when it returns: at the start, or from a worker."""
        content = encode_quorum_state(
            state,
            kraft_version=membership.kraft_version,
            voters=tuple(voter.node_id for voter in membership.voters),
        )
        replace_file(self._world.disk, f"{self.directory}/{QUORUM_STATE_FILE}", content, durable=True)

    def read_amnesia(self) -> Amnesia | None:
        """None where there is no such file: this voter knows all that it promised."""
        path = f"{self.directory}/{AMNESIA_FILE}"
        if not self._world.disk.exists(path):
            return None
        return decode_amnesia(self._world.disk.read_file(path))

    def write_amnesia(self, amnesia: Amnesia) -> None:
        """On the device when it returns: at the start, or from a worker."""
        replace_file(self._world.disk, f"{self.directory}/{AMNESIA_FILE}", encode_amnesia(amnesia), durable=True)

    def remove_amnesia(self) -> None:
        """A power loss may bring it back: then this voter finds out once more that nothing is missing."""
        path = f"{self.directory}/{AMNESIA_FILE}"
        if self._world.disk.exists(path):
            self._world.disk.unlink(path)

    # Reading.

    def batches(self, start_offset: Offset, end_offset: Offset) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Whole batches from the first that begins at or after `start_offset`, up to `end_offset`."""
        recent = self._recent.between(start_offset, end_offset)
        for header, batch in self._on_disk(start_offset, end_offset) if recent is None else recent:
            if header.base_offset >= start_offset:
                yield header, batch

    def _on_disk(self, start_offset: Offset, end_offset: Offset) -> Iterator[tuple[BatchHeader, memoryview]]:
        position: int = start_offset
        while position < end_offset:
            read = self._log.read(position, max_bytes=_READ_BYTES, end_offset=end_offset, minimum_one=True)
            content = read.records if isinstance(read.records, bytes) else read.records.read()
            for batch in iter_batches(content):
                header = read_header(batch)
                yield header, batch
                position = header.last_offset + 1

    def read(self, start_offset: Offset, *, max_bytes: int) -> bytes:
        """What a replica that has everything before `start_offset` is sent next, committed or not."""
        end_offset = self._log.log_end_offset
        if start_offset == end_offset:
            return b""
        recent = self._recent.between(start_offset, end_offset)
        if recent:
            return _whole_batches(recent, max_bytes)
        found = self._log.read(start_offset, max_bytes=max_bytes, end_offset=end_offset, minimum_one=True).records
        return found if isinstance(found, bytes) else found.read()

    # Writing.

    def append(self, batches: list[bytearray], now_ms: int) -> list[tuple[BatchHeader, memoryview]]:
        """All of it or, on a full disk, nothing and KafkaError; any other error of the disk is the end of this node.

        What was appended is returned batch by batch.
        """
        start_offset = self._log.log_end_offset
        together = batches[0] if len(batches) == 1 else bytearray().join(batches)
        try:
            self._log.append_as_follower(memoryview(together), now_ms=now_ms)
        except OSError as failure:
            if failure.errno not in DISK_FULL:
                raise
            self._log.truncate_to(start_offset)
            if not self._is_full:
                log.error("Changes of metadata are refused: no space left in %s", self._metadata_log_dir)
                self._is_full = True
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure
        appended = [(read_header(batch), batch) for batch in iter_batches(together)]
        self._recent.appended(appended, start_offset=start_offset, end_offset=self._log.log_end_offset)
        if self._is_full:
            log.info("There is room for metadata again in %s", self._metadata_log_dir)
            self._is_full = False
        return appended

    async def keep_snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot, content: bytearray) -> None:
        """One that came from the leader; KafkaError on a full disk, and then nothing has changed."""
        if self.snapshots.size_of(snapshot_id) is not None:
            return
        try:
            await self.snapshots.write(snapshot_id, content, timestamp_ms=snapshot.last_contained_timestamp_ms)
        except OSError as failure:
            if failure.errno not in DISK_FULL:
                raise
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure

    async def sync(self) -> Offset:
        """Everything that is in the log now survives a power loss; how far that is."""
        async with self.device:
            work = self._log.flush_work(epochs=False)
            await self._world.workers.run(work)
            self._log.flushed(work.offset)
            return Offset(work.offset)

    def committed(self, end_offset: Offset) -> None:
        self._log.advance_high_watermark(end_offset)

    async def truncate_to(self, end_offset: Offset) -> None:
        async with self.device:
            self._recent.clear()
            self._log.truncate_to(end_offset)

    async def begin_at_snapshot(self, snapshot_id: SnapshotId) -> None:
        """A snapshot from the leader stands for everything this log had."""
        async with self.device:
            self._recent.clear()
            self._log.truncate_fully_and_start_at(snapshot_id.end_offset)
            self._log.advance_high_watermark(snapshot_id.end_offset)
            self._log.purge_deleted(self._world.clock.now_ms())

    def clean(self, now_ms: int, *, max_bytes: int, max_age_ms: int) -> None:
        """Remove snapshots that newer ones replace, and the log before the oldest that stays."""
        self.snapshots.remove_superseded(
            log_bytes=self._log.size_bytes, now_ms=now_ms, max_bytes=max_bytes, max_age_ms=max_age_ms
        )
        oldest = self.snapshots.oldest
        if oldest is not None and oldest.end_offset > self._log.log_start_offset:
            self._log.delete_records_before(oldest.end_offset)
        self._log.apply_retention(now_ms)
        self._log.purge_deleted(now_ms)

    def close(self) -> None:
        self._log.close()


def _whole_batches(batches: list[tuple[BatchHeader, memoryview]], max_bytes: int) -> bytes:
    """As many of them as that is enough for, and one in any case."""
    size = 0
    for count, (header, _) in enumerate(batches):
        size += header.size
        if size > max_bytes:
            return b"".join([batch for _, batch in batches[: max(count, 1)]])
    return b"".join([batch for _, batch in batches])


def _log_config(segment_bytes: int, segment_ms: int) -> LogConfig:
    """Retention is by snapshots alone, and a batch is as large as a decision makes it."""
    return LogConfig(
        segment_bytes=segment_bytes,
        segment_ms=segment_ms,
        retention_ms=-1,
        retention_bytes=-1,
        max_message_bytes=(1 << 31) - 1,
        file_delete_delay_ms=0,
    )
