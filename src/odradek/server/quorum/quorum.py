"""This node's part in the quorum: the shell around `metadata.raft`, and the newest image of what was committed.

Every node has one: a controller votes, a broker follows as an observer. What the core decides is carried out in the
order it says: state on the device, records into the log, requests to the others. A record counts once a majority has
it on its devices, and only then is it replayed into the image that everyone reads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.ids import NO_NODE, NO_OFFSET, ZERO_UUID, LeaderEpoch, NodeId, Offset, Uuid
from odradek.metadata.image import Changes, Image, UnknownRecord
from odradek.metadata.raft.amnesia import BadAmnesia
from odradek.metadata.raft.core import Raft
from odradek.metadata.raft.quorum_state import BadQuorumState
from odradek.metadata.raft.snapshot import Snapshot, SnapshotId
from odradek.metadata.raft.state import Timing
from odradek.metadata.raft.voters import BadVoters, Membership, ReplicaKey, Voter
from odradek.metadata.raft.wire import Address
from odradek.ports import DISK_FULL, World
from odradek.protocol.codec import Message
from odradek.protocol.errors import KafkaError, MalformedFrame
from odradek.server.configs.quorum_settings import QuorumSettings
from odradek.server.quorum.commits import Commits
from odradek.server.quorum.idle_leader import IdleLeader
from odradek.server.quorum.log import BadMetadataLog, MetadataLog
from odradek.server.quorum.raft_requests import RaftRequests
from odradek.server.quorum.raft_timer import RaftTimer
from odradek.server.quorum.replay import Replay, SnapshotSettings, not_controller
from odradek.server.quorum.voters_in_log import VotersInLog, check_place
from odradek.server.quorum.writer import MetadataWriter
from odradek.server.waiting.deferred import Woken
from odradek.values import replace

if TYPE_CHECKING:
    from odradek.metadata.raft.fetch_forms import AnswerForm, Shape
    from odradek.server.quorum.follower import MetadataFollower
    from odradek.server.quorum.reads import KnownFollower
    from odradek.server.quorum.voter_changes import VoterChanges

log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

CLOSING_MS = 1000
"""How long a leader that stops waits for the others to take note."""

FULL_PAUSE_MS = 500
"""Between two tries to write down a promise on a disk that is full."""


class Quorum:
    """The metadata log, who leads it, and the newest image of it."""

    def __init__(
        self,
        world: World,
        *,
        metadata_log_dir: str,
        me: Voter,
        listener_name: str,
        settings: QuorumSettings,
        cluster_id: str = "",
        static_voters: tuple[Voter, ...] = (),
        bootstrap_servers: tuple[Address, ...] = (),
        may_vote: bool = True,
    ) -> None:
        """`me` is this node as a voter: its id, its controller listener's address, and the metadata directory's id.

        `static_voters` are those of `controller.quorum.voters`, which count while kraft.version is 0.
        `bootstrap_servers` are where to ask who leads; where neither names anybody else, this node is the only voter.
        A node without the controller's role does not vote and follows as an observer.
        """
        self.cluster_id = cluster_id
        self.settings = settings
        self.listener_name = listener_name
        self.log = MetadataLog(
            world, metadata_log_dir, segment_bytes=settings.segment_bytes, segment_ms=settings.segment_ms
        )
        alone = may_vote and all(_is_own(server, me) for server in bootstrap_servers)
        only = (replace(me, directory_id=ZERO_UUID),) if alone else ()
        self.membership = Membership(static_voters or only)
        self.raft: Raft
        self.commits: Commits
        self._timer: RaftTimer
        self._requests: RaftRequests
        self._me = me
        self._may_vote = may_vote
        self._world = world
        self._replay = Replay(
            world,
            self.log,
            self.membership,
            listener_name=listener_name,
            settings=SnapshotSettings(
                settings.max_bytes_between_snapshots,
                settings.max_snapshot_interval_ms,
                settings.max_retention_bytes,
                settings.max_retention_ms,
            ),
        )
        self._replay.on_applied = self._maybe_activate
        self._writer = MetadataWriter(world.clock, self.log, self._replay)
        self._voters_in_log = VotersInLog(self.membership, listener_name)
        self._idle = IdleLeader(self)
        self.turn = asyncio.Lock()
        """Events reach the core one after another: the next one when what the last one asked for is done."""
        self._bootstrap_servers = bootstrap_servers
        self._follower: MetadataFollower | None = None
        self._voter_changes: VoterChanges | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._closed = False
        self._told: tuple[LeaderEpoch, NodeId, Address | None] = (LeaderEpoch(-1), NO_NODE, None)
        self._active_epoch: LeaderEpoch | None = None
        self._epoch_start_offset = NO_OFFSET
        self.known_followers: dict[Shape, KnownFollower] = {}
        """Who fetches from here, by what does not change in its requests."""
        self.answer_form: AnswerForm | None = None
        self._changed: asyncio.Future[None] | None = None
        self.on_leadership: Callable[[LeaderEpoch | None], None] = lambda epoch: None
        """Told the epoch in which this node may decide, once it may, and None when it may not any more."""
        self.on_leader: Callable[[], None] = lambda: None
        """Told when the leader, its address or its epoch is another."""
        self.on_leader_ended: Callable[[NodeId], None] = lambda leader_id: None
        """Told when the leader has closed the connection on which this node followed it and cannot be reached again."""
        self.on_failure: Callable[[BaseException], None] = lambda failure: None
        """Told when this node's log and the quorum's cannot be brought together: the node must stop."""

    # What others look at.

    @property
    def on_commit(self) -> Callable[[Image, Changes], Awaitable[None]]:
        """Awaited before an append counts as done: who asked for a topic finds it served."""
        return self._replay.on_commit

    @on_commit.setter
    def on_commit(self, carry_out: Callable[[Image, Changes], Awaitable[None]]) -> None:
        self._replay.on_commit = carry_out

    @property
    def image(self) -> Image:
        """Everything committed."""
        return self._replay.image

    @property
    def epoch(self) -> LeaderEpoch:
        return self.raft.epoch

    @property
    def leader_id(self) -> NodeId:
        """The active controller; NO_NODE while nobody is known to be."""
        return self.raft.leader_id

    @property
    def leader_address(self) -> Address | None:
        """Where the active controller listens; None while nobody is known to lead."""
        return self.raft.leader_address

    @property
    def is_active(self) -> bool:
        """Whether this node leads, and has replayed everything that was committed before it did: it may decide now."""
        return self._active_epoch is not None and self.raft.is_leader and self._active_epoch == self.raft.epoch

    @property
    def is_alone(self) -> bool:
        """Whether nobody else has a vote."""
        return self.raft.is_lone_voter

    @property
    def voters(self) -> tuple[Voter, ...]:
        """Whose votes count."""
        return self.membership.voters

    @property
    def me(self) -> Voter:
        return self._me

    @property
    def directory_id(self) -> Uuid:
        """Of the directory that holds the metadata log."""
        return self._me.directory_id

    @property
    def high_watermark(self) -> Offset:
        """Below it everything is committed."""
        return self.log.high_watermark

    @property
    def kraft_version(self) -> int:
        return self.membership.kraft_version

    @property
    def next_offset(self) -> Offset:
        """Where a leader's next record will be: nobody else appends."""
        return self.log.log_end_offset

    @property
    def interrupted_transaction(self) -> bool:
        """Whether the log ends inside a metadata transaction, which the controller must then abort."""
        return self._replay.in_transaction

    # Starting.

    def advertise(self, host: str, port: int) -> None:
        """Where this node's controller listener really is, once it is open: any free port may have been asked for."""
        self._me = replace(self._me, host=host, port=port)

    async def start(self, *, clean: bool) -> None:
        """Load what is there; a lone voter leads when this returns, others begin to look for their leader.

        `clean` says that the last shutdown was; else the log is checked and a torn tail cut. What a lone voter appends
        here is synced with the first commit, before anybody can have learnt of it. BadMetadataLog when it cannot be.
        """
        try:
            self._load(clean=clean)
        except (BadQuorumState, BadAmnesia, BadVoters, UnknownRecord, MalformedFrame, KafkaError) as wrong:
            raise BadMetadataLog(f"Cannot start on {self.log.directory}: {wrong}") from wrong
        self.raft.begin(self._world.clock.monotonic_ms())
        if self.raft.is_leader:
            self._lead_alone()
        else:
            async with self.turn:
                await self.carry_out()

    def _load(self, *, clean: bool) -> None:
        self._replay.load(self.log.open(clean=clean))
        state = self.log.read_state()
        self._voters_in_log.load(self.log, self._replay.applied)
        self.raft = Raft(
            self._me,
            cluster_id=self.cluster_id,
            listener_name=self.listener_name,
            may_vote=self._may_vote,
            log=self.log,
            membership=self.membership,
            state=state,
            timing=Timing(
                self.settings.election_timeout_ms,
                self.settings.election_backoff_max_ms,
                self.settings.fetch_timeout_ms,
            ),
            draw=self._world.entropy.below,
            amnesia=self.log.read_amnesia(),
        )
        self.commits = Commits(
            self.raft, self.log, self._replay, spawn=self.spawn, fail=lambda failure: self.on_failure(failure)
        )
        self._timer = RaftTimer(self.raft, self._world.clock, partial(self.soon, self.raft.tick))
        self._requests = RaftRequests(
            self.raft, self._world.network, timeout_ms=self.settings.request_timeout_ms, step=self.step
        )
        check_place(self.raft)
        if self.raft.is_lone_voter:
            self._replay.load_all()
        self._writer.version = self._replay.check_features()

    def _lead_alone(self) -> None:
        """Nobody is waited for, and nothing is synced but the epoch: the first commit syncs the rest."""
        ready = self.raft.take()
        assert ready is not None
        if ready.state is not None:
            self.log.write_state(ready.state, self.membership)
        if ready.remembers:
            self.log.remove_amnesia()
        self._epoch_start_offset = self._append_control(ready.records)
        self._replay.skip_to(self.log.log_end_offset)
        self._tell_leader()
        self._maybe_activate()

    # The core's events and what follows from them.

    async def step(self, event: Callable[[int], ResultT]) -> ResultT:
        """Hand the core one event (`event(now_ms)`), and come back once what follows from it is done.

        Whoever asked may go away meanwhile; what was begun is done to its end all the same, and in its turn.
        """
        if self._closed:
            raise not_controller()
        task = self.spawn(self._step(event))
        await asyncio.wait([task])
        return task.result()

    def soon(self, event: Callable[[int], object]) -> None:
        """Hand the core one event in its turn; nobody waits for what follows from it."""
        self.spawn(self._step(event))

    async def _step(self, event: Callable[[int], ResultT]) -> ResultT:
        async with self.turn:
            result = event(self._world.clock.monotonic_ms())
            await self.carry_out()
            return result

    async def carry_out(self) -> None:
        """What the core wants done, in the order it says; the caller has the turn."""
        self._tell_leader()
        while (ready := self.raft.take()) is not None:
            if ready.amnesia is not None:
                await self._keep(partial(self.log.write_amnesia, ready.amnesia))
            if ready.state is not None:
                await self._keep(partial(self.log.write_state, ready.state, self.membership))
            if ready.remembers:
                log.info("This voter has everything that it may once have promised, and votes again")
                self.log.remove_amnesia()
            if ready.records:
                self._begin_epoch(ready.records)
            for send in ready.sends:
                self.spawn(self._requests.deliver(send))
            self._tell_leader()
        self.commits.advanced()
        self._timer.set()

    async def _keep(self, write: Callable[[], None]) -> None:
        """Nothing may follow from a promise that is not on the device: without room for it, this node is silent."""
        waits = False
        while True:
            try:
                await self._world.workers.run(write)
            except OSError as failure:
                if failure.errno not in DISK_FULL or self._closed:
                    raise
                if not waits:
                    log.error("This node takes no part in the quorum: no space left in %s", self.log.directory)
                    waits = True
                await asyncio.sleep(FULL_PAUSE_MS / 1000)
            else:
                break
        if waits:
            log.info("This node takes part in the quorum again")

    def _begin_epoch(self, records: Sequence[Message]) -> None:
        if not self.raft.is_leader:
            return
        try:
            self._epoch_start_offset = self._append_control(records)
        except KafkaError as full:
            log.error("This node cannot lead: %s", full)
            self.raft.resign(self._world.clock.monotonic_ms())
        else:
            self.spawn(self.commits.sync_own())

    def spawn(self, work: Coroutine[Any, Any, ResultT]) -> asyncio.Task[ResultT]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        if self._closed:
            task.cancel()
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        failure = None if task.cancelled() else task.exception()
        if failure is not None and not self._closed:
            self.on_failure(failure)

    def _tell_leader(self) -> None:
        """Let everybody know, at once, who leads and whether it is this node."""
        raft = self.raft
        if self._active_epoch is not None and not (raft.is_leader and raft.epoch == self._active_epoch):
            self._active_epoch = None
            log.info("This node is not the active controller any more")
            self.on_leadership(None)
        standing = (raft.epoch, raft.leader_id, raft.leader_address)
        if standing != self._told:
            if not raft.is_leader:
                self._replay.forget_written()
                self._start_following()
            if standing[:2] != self._told[:2]:
                leader = "nobody" if raft.leader_id == NO_NODE else f"node {raft.leader_id}"
                log.info("In epoch %d of the metadata quorum %s leads", raft.epoch, leader)
            self._told = standing
            self.commits.wake()
            if self._changed is not None and not self._changed.done():
                self._changed.set_result(None)
            if self._follower is not None:
                self._follower.leader_changed()
            self.on_leader()

    def _start_following(self) -> None:
        """From the first time there is somebody else to follow: a lone node spares itself what that needs."""
        if self._follower is None and not self._closed:
            from odradek.server.quorum.follower import MetadataFollower

            self._follower = MetadataFollower(self, self._world, self._bootstrap_servers)
            self.spawn(self._follower.run())

    @property
    def voter_changes(self) -> VoterChanges:
        """What a leader does to change the voters."""
        if self._voter_changes is None:
            from odradek.server.quorum.voter_changes import VoterChanges

            self._voter_changes = VoterChanges(self._world, self)
        return self._voter_changes

    def leader_changed(self) -> asyncio.Future[None]:
        """Done when leader, epoch or address is another than now."""
        if self._changed is None or self._changed.done():
            self._changed = asyncio.get_running_loop().create_future()
        return self._changed

    # Appending.

    async def append(self, batches: Sequence[Sequence[Message]], *, epoch: LeaderEpoch | None = None) -> None:
        """Make these records durable, each sequence a batch of its own, then replay them; one sync for all of them.

        NOT_CONTROLLER when this node does not lead (in `epoch`, if one is given), or ceases to before they are
        committed: then nobody may answer success. KafkaError when the disk is full: then nothing has changed. Any other
        error of the disk is the end of this node.
        """
        if not self.is_active or (epoch is not None and epoch != self.raft.epoch):
            raise not_controller()
        epoch = self.raft.epoch
        if any(batches):
            try:
                self._writer.write(batches, epoch)
                self._idle.put_off()
            except KafkaError:
                if not self.raft.is_lone_voter:  # Others may have room.
                    self.spawn(self._step(self._give_way))
                raise
            self.commits.wake()
        elif not self.raft.is_lone_voter:
            return
        end_offset = self.log.log_end_offset
        await self.commits.sync_own()
        if self.raft.high_watermark >= end_offset and not self._replay.is_busy:
            await self._replay.run(self.commits.end_offset)
        else:
            await self.commits.until(end_offset, epoch)

    def _give_way(self, now_ms: int) -> None:
        if self.raft.is_leader:
            log.error("This node cannot lead: no space left in %s", self.log.directory)
            self.raft.resign(now_ms)

    def _append_control(self, messages: Sequence[Message]) -> Offset:
        """Where the batch begins; KafkaError on a full disk."""
        base_offset = self._writer.write_control(messages, self.raft.epoch)
        self._voters_in_log.note_records(base_offset, messages)
        self.raft.membership_changed()
        self.commits.wake()
        return base_offset

    def append_membership(self, records: Sequence[Message]) -> Offset:
        """Another voter set, as the active leader; it counts from now on. Where the records end."""
        assert self.is_active
        self._append_control(records)
        self.spawn(self.commits.sync_own())
        self._timer.set()
        self._idle.put_off()
        return self.log.log_end_offset

    async def caught_up(self) -> None:
        """Come back once all that the leader has committed by now is replayed here."""
        await self.in_touch()
        raft = self.raft  # A follower may have been told of more than it has got so far.
        await self._replay.until(max(raft.high_watermark, raft.told_high_watermark), None)

    async def in_touch(self) -> None:
        """Come back once a leader has said what is committed."""
        raft = self.raft
        while (raft.high_watermark if raft.is_leader else raft.told_high_watermark) < 0 and not self.is_active:
            waiter = Woken()
            self.commits.park(waiter)
            await waiter

    def _maybe_activate(self) -> None:
        raft = self.raft
        if raft.is_leader and self._active_epoch != raft.epoch and self._replay.applied > self._epoch_start_offset >= 0:
            self._active_epoch = raft.epoch
            self._writer.version = self.image.features.metadata_version
            log.info("This node is the active controller of epoch %d", raft.epoch)
            self._idle.put_off()
            self.on_leadership(raft.epoch)

    # Following: what `MetadataFollower` has fetched.

    async def take_records(self, records: memoryview, high_watermark: int) -> None:
        """Records from the leader, on the device before the next fetch says so. The caller has the turn."""
        if len(records):
            self._append_fetched(records)
            if self.raft.may_vote:
                await self.log.sync()
        self._accept(high_watermark)
        await self.carry_out()

    def take_unsynced(self, records: memoryview, high_watermark: int) -> None:
        """The same on a node that will never vote, and on which nobody has the turn: nothing is waited for.

        What such a node says to have counts for nothing, and what it loses with its power, it fetches again.
        """
        if self._append_fetched(records):
            self._tell_leader()
        self.take_nothing(high_watermark)

    def _append_fetched(self, records: memoryview) -> bool:
        """Whether voters may be others now."""
        has_control = False
        for header, batch in self.log.append([bytearray(records)], self._world.clock.now_ms()):
            if header.is_control:
                self._voters_in_log.note_batch(header, batch)
                self.raft.membership_changed()
                has_control = True
        return has_control

    def take_nothing(self, high_watermark: int) -> None:
        """The leader has nothing new; nobody has the turn, so that nothing else is to be carried out."""
        self._accept(high_watermark)
        self.commits.advanced()
        self._timer.set()
        if self.raft.has_ready:  # This voter has got to know what it may have promised, or that it lacks some of it.
            self.soon(lambda now_ms: None)

    def _accept(self, high_watermark: int) -> None:
        raft = self.raft
        is_first = raft.told_high_watermark < 0
        raft.fetch_accepted(high_watermark, self._world.clock.monotonic_ms())
        if is_first and raft.told_high_watermark >= 0:
            self.commits.wake()  # Whoever waits to be in touch: the log's own high watermark may not be seen to move.

    async def truncate(self, end_offset: Offset) -> None:
        """Cut what the leader does not have; what is committed cannot be meant. The caller has the turn."""
        kept = max(self._replay.applied, self.log.high_watermark)
        if end_offset < kept:
            raise BadMetadataLog(
                f"The leader of epoch {self.raft.epoch} asks to truncate the metadata log to offset {end_offset}, and "
                f"everything below {kept} is committed: a majority of the voters must have lost its disks."
            )
        log.info("Truncating the metadata log to offset %d, as the leader's goes on differently", end_offset)
        await self.log.truncate_to(end_offset)
        self.membership.truncated(end_offset)
        self.raft.membership_changed()
        self.raft.fetch_accepted(NO_OFFSET, self._world.clock.monotonic_ms())
        await self.carry_out()

    async def take_snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot, content: bytearray) -> None:
        """A whole snapshot from the leader replaces log and image. The caller has the turn."""
        await self.log.keep_snapshot(snapshot_id, snapshot, content)
        await self._replay.start_over(snapshot_id, snapshot)
        self.raft.snapshot_accepted(snapshot_id.end_offset, self._world.clock.monotonic_ms())
        self.commits.wake()  # The log's own high watermark has come with the snapshot, and will not be seen to move.
        await self.carry_out()

    def note_fetch(self) -> None:
        """A replica's fetch may have moved the high watermark; a lone voter's may wait for the first commit."""
        high_watermark = self.raft.high_watermark
        if high_watermark > self.log.high_watermark:
            self.commits.advanced()
        elif high_watermark < 0 and self.raft.is_lone_voter:
            self.spawn(self.commits.sync_own())

    async def write_snapshot(self) -> None:
        """Write the committed image down now, and let go of what that makes unnecessary."""
        await self._replay.write_snapshot()

    # Stopping.

    async def close(self) -> None:
        """Leave the log closed in order; a leader resigns first, so that the others need not find out."""
        if self.raft.is_leader and not self.raft.is_lone_voter and not self._closed:
            await self._resign()
        self.raft.closing = True
        self._closed = True
        self._timer.cancel()
        self._idle.cancel()
        async with self.turn, self.log.device:  # A worker may be in the middle of what it was given.
            for task in list(self._tasks):
                task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        for connected in (self._requests, self._follower, self._voter_changes):
            if connected is not None:
                connected.close()
        self.commits.wake()
        await self._replay.close()
        self.log.close()

    async def _resign(self) -> None:
        before = list(self._tasks)
        await self.step(self.raft.resign)
        told = [task for task in self._tasks if task not in before]
        if told:
            await asyncio.wait(told, timeout=CLOSING_MS / 1000)

    @property
    def key(self) -> ReplicaKey:
        return self._me.key


def _is_own(server: Address, me: Voter) -> bool:
    return server[1] == me.port and server[0] in (me.host, "localhost", "127.0.0.1", "::1")
