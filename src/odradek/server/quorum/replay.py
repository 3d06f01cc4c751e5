"""Committed records become images, and images become snapshots: what a node does with the metadata log behind the
high watermark.

The same on every node, leader or not. A leader hands over what it has just written, so that it need not be read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from odradek.ids import LeaderEpoch, Offset
from odradek.metadata.features import LATEST_METADATA_VERSION, METADATA_VERSION, RELEASES
from odradek.metadata.image import Changes, Image, Provenance
from odradek.metadata.image.difference import difference
from odradek.metadata.loader import Loader
from odradek.metadata.raft.snapshot import QuorumRecords, Snapshot, SnapshotId, build_snapshot
from odradek.metadata.raft.voters import Membership
from odradek.metadata.serde import decode_batch
from odradek.ports import World
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.server.quorum.log import BadMetadataLog, MetadataLog
from odradek.values import value

log = logging.getLogger(__name__)

MAX_REPLAY_BYTES = 4 << 20
"""So much of the log is replayed in one go, lest a node that has much to catch up with stands still meanwhile."""


@value
class SnapshotSettings:
    """When a snapshot is due, and what may go then."""

    max_bytes_between_snapshots: int
    max_snapshot_interval_ms: int
    max_retention_bytes: int
    max_retention_ms: int


@value
class Written:
    """A batch this leader wrote, still in memory."""

    base_offset: int
    end_offset: int
    records: Sequence[Message]
    epoch: LeaderEpoch
    timestamp_ms: int


@value
class _Waiting:
    """Somebody who waits for an offset to be replayed; `epoch` is that of the leader who wrote it, if one did."""

    end_offset: int
    epoch: LeaderEpoch | None
    future: asyncio.Future[None]


class Replay:
    """The newest image, and how far it has come."""

    def __init__(
        self,
        world: World,
        metadata_log: MetadataLog,
        membership: Membership,
        *,
        listener_name: str,
        settings: SnapshotSettings,
    ) -> None:
        self.applied = Offset(0)
        """Everything below is in the image."""
        self.on_commit: Callable[[Image, Changes], Awaitable[None]] = _nothing_to_carry_out
        self.on_applied: Callable[[], None] = lambda: None
        self._world = world
        self._log = metadata_log
        self._membership = membership
        self._listener_name = listener_name
        self._settings = settings
        self._loader = Loader()
        self._turn = asyncio.Lock()
        self._written: deque[Written] = deque()
        self._waiting: list[_Waiting] = []
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms = 0
        self._snapshot_task: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def image(self) -> Image:
        return self._loader.image

    @property
    def in_transaction(self) -> bool:
        return self._loader.in_transaction

    @property
    def is_busy(self) -> bool:
        """Whether somebody is replaying: whoever does goes on until everything committed is."""
        return self._turn.locked()

    @property
    def is_awaited(self) -> bool:
        return bool(self._waiting)

    # At the start.

    def load(self, loaded: tuple[SnapshotId, Snapshot] | None) -> None:
        self._last_snapshot_ms = self._world.clock.monotonic_ms()
        if loaded is not None:
            self._take_in(*loaded)

    def load_all(self) -> None:
        """Everything a lone voter has in its log is committed, or about to be: nobody else can say otherwise."""
        records: list[Message] = []
        newest = self._read(records, self._log.log_end_offset, limit_bytes=None)
        if newest is not None:
            self._loader.replay(records, newest)

    def check_features(self) -> int:
        """The level of metadata.version; BadMetadataLog if this node is too old for it."""
        level = self.image.features.metadata_version
        if level > LATEST_METADATA_VERSION:
            raise BadMetadataLog(
                f"The cluster has {METADATA_VERSION} {level}, and this node knows none above "
                f"{LATEST_METADATA_VERSION} ({RELEASES[LATEST_METADATA_VERSION]})."
            )
        return level

    def _take_in(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        self._membership.loaded(snapshot.kraft_version, snapshot.voters)
        last_offset = Offset(snapshot_id.end_offset - 1)
        provenance = Provenance(last_offset, snapshot_id.epoch, snapshot.last_contained_timestamp_ms)
        self._loader.replay(snapshot.records, provenance)
        self.applied = snapshot_id.end_offset

    # Replaying.

    def wrote(self, batches: Sequence[Written]) -> None:
        """What a leader has put into its log."""
        self._written += batches

    def forget_written(self) -> None:
        """This node leads no more: what it wrote may be replaced, and those who wait for it get NOT_CONTROLLER."""
        self._written.clear()
        kept = []
        for waiting in self._waiting:
            if waiting.epoch is None:
                kept.append(waiting)
            elif not waiting.future.done():
                waiting.future.set_exception(not_controller())
        self._waiting = kept

    async def until(self, end_offset: int, epoch: LeaderEpoch | None) -> None:
        """Wait until the image has all below `end_offset`; NOT_CONTROLLER if `epoch` is given and over before."""
        if self.applied < end_offset:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(_Waiting(end_offset, epoch, future))
            await future

    async def run(self, committed: Callable[[], int]) -> None:
        """Replay everything below `committed()`, piece by piece, and carry it out; one at a time does so."""
        async with self._turn:
            while self.applied < (end_offset := committed()):
                changes = self._replay_next(end_offset)
                if changes is not None:
                    await self.on_commit(self.image, changes)
                self._tell_applied()
                self._maybe_snapshot()

    def _replay_next(self, end_offset: int) -> Changes | None:
        """The next piece; None for control records alone."""
        records: list[Message] = []
        written = self._written
        while written and written[0].base_offset < self.applied:
            written.popleft()
        newest: Provenance | None = None
        if not written or written[0].base_offset > self.applied:
            newest = self._read(records, end_offset, limit_bytes=MAX_REPLAY_BYTES)
            self.check_features()
        while written and written[0].base_offset == self.applied and written[0].end_offset <= end_offset:
            batch = written.popleft()
            records += batch.records
            newest = Provenance(Offset(batch.end_offset - 1), batch.epoch, batch.timestamp_ms)
            self.applied = Offset(batch.end_offset)
        if newest is None:
            return None
        changes = self._loader.replay(records, newest)
        return changes if records else None

    def _read(self, records: list[Message], end_offset: int, *, limit_bytes: int | None) -> Provenance | None:
        newest: Provenance | None = None
        size = 0
        for header, batch in self._log.batches(self.applied, Offset(end_offset)):
            newest = Provenance(Offset(header.last_offset), LeaderEpoch(header.leader_epoch), header.max_timestamp)
            if not header.is_control:
                self._bytes_since_snapshot += header.size
                records += decode_batch(batch)
            self.applied = Offset(header.last_offset + 1)
            size += header.size
            if limit_bytes is not None and size >= limit_bytes:
                break
        return newest

    def grown(self, size_bytes: int) -> None:
        """So much was written that will not be read again."""
        self._bytes_since_snapshot += size_bytes

    def skip_to(self, end_offset: Offset) -> None:
        """What lies before is of no interest to an image: a lone voter's own control records."""
        self.applied = end_offset

    def _tell_applied(self) -> None:
        kept = []
        for waiting in self._waiting:
            if waiting.end_offset > self.applied:
                kept.append(waiting)
            elif not waiting.future.done():
                waiting.future.set_result(None)
        self._waiting = kept
        self.on_applied()

    async def start_over(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        """Another image: the one of a snapshot that came from the leader."""
        async with self._turn:
            await self._log.begin_at_snapshot(snapshot_id)
            before = self.image
            self._loader = Loader()
            self._take_in(snapshot_id, snapshot)
            self.check_features()
            self._bytes_since_snapshot = 0
            await self.on_commit(self.image, difference(before, self.image))
            self._tell_applied()

    # Snapshots.

    def _maybe_snapshot(self) -> None:
        settings = self._settings
        age_ms = self._world.clock.monotonic_ms() - self._last_snapshot_ms
        due = self._bytes_since_snapshot >= settings.max_bytes_between_snapshots or (
            0 < settings.max_snapshot_interval_ms <= age_ms
        )
        if not due or self._snapshot_task is not None or self._loader.in_transaction or self._closed:
            return
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms = self._world.clock.monotonic_ms()
        self._snapshot_task = asyncio.create_task(self.write_snapshot())
        self._snapshot_task.add_done_callback(self._snapshot_done)

    def _snapshot_done(self, task: asyncio.Task[None]) -> None:
        self._snapshot_task = None
        if not task.cancelled() and isinstance(task.exception(), OSError):
            # The log is whole without it; the next commit that finds one due tries again.
            log.error("Could not write a metadata snapshot: %s", task.exception())

    async def write_snapshot(self) -> None:
        """Write the committed image down, and let go of what it makes unnecessary."""
        image = self.image
        snapshot_id = SnapshotId(Offset(image.provenance.offset + 1), image.provenance.epoch)
        if self._log.newest_snapshot == snapshot_id:
            return
        kraft_version, voters = self._membership.as_of(snapshot_id.end_offset)
        quorum = QuorumRecords(kraft_version, voters, self._listener_name) if kraft_version else None
        now_ms = self._world.clock.now_ms()
        content = await self._world.workers.run(
            lambda: build_snapshot(
                image.records(),
                metadata_version=image.features.metadata_version,
                epoch=image.provenance.epoch,
                last_contained_timestamp_ms=image.provenance.timestamp_ms,
                now_ms=now_ms,
                quorum=quorum,
            )
        )
        await self._log.snapshots.write(snapshot_id, content, timestamp_ms=image.provenance.timestamp_ms)
        self._log.clean(
            now_ms, max_bytes=self._settings.max_retention_bytes, max_age_ms=self._settings.max_retention_ms
        )

    async def close(self) -> None:
        """Nothing is written any more when this returns."""
        self._closed = True
        if self._snapshot_task is not None:
            await asyncio.wait([self._snapshot_task])


def not_controller() -> KafkaError:
    """This node does not lead, or not any more."""
    return KafkaError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")


async def _nothing_to_carry_out(image: Image, changes: Changes) -> None:
    """Until the node has partitions to change."""
