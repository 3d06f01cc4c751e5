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

from odradek.client.errors import ConnectionLost, RequestTimedOut
from odradek.ids import NO_NODE, NO_OFFSET, ZERO_UUID, LeaderEpoch, NodeId, Offset, Uuid
from odradek.metadata.features import METADATA_VERSION
from odradek.metadata.image import Changes, Image, UnknownRecord
from odradek.metadata.raft.control_records import control_record, read_control_record, recorded_voters
from odradek.metadata.raft.core import Raft
from odradek.metadata.raft.quorum_state import BadQuorumState, QuorumState
from odradek.metadata.raft.snapshot import Snapshot, SnapshotId
from odradek.metadata.raft.state import Send, Timing
from odradek.metadata.raft.voters import BadVoters, Membership, ReplicaKey, Voter
from odradek.metadata.raft.wire import Address, vote_response
from odradek.metadata.records import FeatureLevelRecord, NoOpRecord
from odradek.metadata.serde import encode_record
from odradek.ports import DISK_FULL, World
from odradek.protocol.api import ApiKey, response_class
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedFrame
from odradek.protocol.messages.control_records import KRaftVersionRecord, VotersRecord
from odradek.protocol.messages.vote import VoteRequest
from odradek.protocol.records.batch import BatchHeader, build_batch, decode_records
from odradek.protocol.records.record import Record
from odradek.server.metadata_log import BadMetadataLog, MetadataLog
from odradek.server.peers import Peers, UnsupportedByPeer, version_for
from odradek.server.purgatory import Expiring
from odradek.server.replay import Replay, SnapshotSettings, Written, not_controller
from odradek.server.suspended import resume
from odradek.values import replace, value

if TYPE_CHECKING:
    from odradek.metadata.raft.fetch_forms import AnswerForm, Shape
    from odradek.server.handlers.quick_fetch_metadata import KnownFollower
    from odradek.server.metadata_follower import MetadataFollower
    from odradek.server.voter_changes import VoterChanges

__all__ = ["BadMetadataLog", "Quorum", "QuorumSettings"]

log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

MAX_RECORDS_PER_BATCH = 20_000
"""More than any request may ask for, so each is one batch. Only a broker that leads more partitions when it starts
makes more records at once, and those need not be all or nothing; a batch must stay below Kafka's 8 MiB."""

CLOSING_MS = 1000
"""How long a leader that stops waits for the others to take note."""

FULL_PAUSE_MS = 500
"""Between two tries to write down a promise on a disk that is full."""

_PRE_VOTE_VERSION = 2


@value
class QuorumSettings:
    """The metadata log's and the quorum's part of the configuration."""

    segment_bytes: int
    segment_ms: int
    max_bytes_between_snapshots: int
    max_snapshot_interval_ms: int
    max_retention_bytes: int
    max_retention_ms: int
    election_timeout_ms: int = 1000
    election_backoff_max_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_bytes: int = 1 << 20
    fetch_snapshot_max_bytes: int = 1 << 20
    max_idle_interval_ms: int = 500
    auto_join: bool = False


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
        self._me = me
        self._may_vote = may_vote
        self._world = world
        self._write_version = 0
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
        self.turn = asyncio.Lock()
        """Events reach the core one after another: the next one when what the last one asked for is done."""
        self._bootstrap_servers = bootstrap_servers
        self._peers: Peers | None = None
        self._follower: MetadataFollower | None = None
        self._voter_changes: VoterChanges | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._told: tuple[LeaderEpoch, NodeId, Address | None] = (LeaderEpoch(-1), NO_NODE, None)
        self._active_epoch: LeaderEpoch | None = None
        self._epoch_start_offset = NO_OFFSET
        self._parked: list[Expiring] = []
        self.known_followers: dict[Shape, KnownFollower] = {}
        """Who fetches from here, by what does not change in its requests."""
        self.answer_form: AnswerForm | None = None
        self._changed: asyncio.Future[None] | None = None
        self._replays_soon = False
        self.on_leadership: Callable[[LeaderEpoch | None], None] = lambda epoch: None
        """Told the epoch in which this node may decide, once it may, and None when it may not any more."""
        self.on_leader: Callable[[], None] = lambda: None
        """Told when the leader, its address or its epoch is another."""
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
        except (BadQuorumState, BadVoters, UnknownRecord, MalformedFrame, KafkaError) as wrong:
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
        self._load_membership()
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
        )
        self._check_place(state)
        if self.raft.is_lone_voter:
            self._replay.load_all()
        self._write_version = self._replay.check_features()

    def _load_membership(self) -> None:
        """Voters count from the moment they are in the log, so all of it is looked through for them."""
        for header, batch in self.log.batches(self._replay.applied, self.log.log_end_offset):
            if header.is_control:
                self._note_control_batch(header, batch)

    def _check_place(self, state: QuorumState | None) -> None:
        """Say early what else would only show as a quorum that never comes about."""
        voters = self.membership.voters
        if not self._may_vote:
            return
        if voters and not self.membership.is_dynamic and not self.raft.is_voter:
            named = ", ".join(str(voter.node_id) for voter in voters) or "nobody"
            raise BadVoters(f"this node ({self._me.node_id}) is not among the voters of its quorum: {named}.")
        mine = self.membership.voter(self._me.node_id)
        if len(voters) == 1 and mine is not None and not self.raft.is_voter:
            raise BadVoters(
                f"Voter {self._me.node_id} of the metadata quorum is another directory than this one: "
                "the log was formatted elsewhere."
            )
        if self.raft.amnesiac and state is None and not self.membership.is_dynamic and len(voters) > 1:
            log.warning(
                "The metadata log is empty: this voter is new, or has lost what it had. Until it has caught up with a "
                "leader, it votes only for others whose log is empty too."
            )

    def _lead_alone(self) -> None:
        """Nobody is waited for, and nothing is synced but the epoch: the first commit syncs the rest."""
        ready = self.raft.take()
        assert ready is not None
        if ready.state is not None:
            self.log.write_state(ready.state, self.membership)
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
            if ready.state is not None:
                await self._keep_state(ready.state)
            if ready.records:
                self._begin_epoch(ready.records)
            for send in ready.sends:
                self.spawn(self._deliver(send))
            self._tell_leader()
        self._advanced()
        self._set_timer()

    async def _keep_state(self, state: QuorumState) -> None:
        """Nothing may follow from a promise that is not on the device: without room for it, this node is silent."""
        waits = False
        while True:
            try:
                await self._world.workers.run(partial(self.log.write_state, state, self.membership))
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
            self.spawn(self._sync_own())

    async def _deliver(self, send: Send) -> None:
        address = (send.to.host, send.to.port)
        timeout_ms = self.settings.request_timeout_ms
        try:
            if self._peers is None:
                self._peers = Peers(self._world.network, client_id=f"raft-client-{self._me.node_id}")
            connection = await self._peers.connect(address, timeout_ms=timeout_ms)
            version = version_for(connection, type(send.request))
            if version < _PRE_VOTE_VERSION and _is_pre_vote(send.request):
                # It knows no pre-vote, so it cannot object to one.
                granted = vote_response(self.raft.standing, ErrorCode.NONE, granted=True)
                await self.step(lambda now_ms: self.raft.answered(send, granted, now_ms))
                return
            assert send.request.api_key is not None
            kind = response_class(ApiKey(send.request.api_key))
            response = await connection.ask(send.request, kind, version, timeout_ms=timeout_ms)
        except (ConnectionLost, RequestTimedOut, UnsupportedByPeer):
            await self.step(lambda now_ms: self.raft.unreachable(send, now_ms))
            return
        if getattr(response, "error_code", 0):
            log.warning(
                "Voter %d answered %s with %s",
                send.to.node_id,
                type(send.request).__name__,
                ErrorCode(response.error_code).name,  # type: ignore[attr-defined]
            )
        await self.step(lambda now_ms: self.raft.answered(send, response, now_ms))

    def _set_timer(self) -> None:
        """One that is set too early stays: every fetch puts off what is due, and hardly ever does it come to that."""
        due_ms = self.raft.next_due_ms
        if due_ms is None or self._closed or (self._timer is not None and self._timer_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        wait_ms = max(due_ms - self._world.clock.monotonic_ms(), 0)
        self._timer = asyncio.get_running_loop().call_later((wait_ms + 1) / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        due_ms = self.raft.next_due_ms
        if due_ms is not None and due_ms <= self._world.clock.monotonic_ms():
            self.soon(self.raft.tick)
        else:
            self._set_timer()

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
            self.wake()
            if self._changed is not None and not self._changed.done():
                self._changed.set_result(None)
            if self._follower is not None:
                self._follower.leader_changed()
            self.on_leader()

    def _start_following(self) -> None:
        """From the first time there is somebody else to follow: a lone node spares itself what that needs."""
        if self._follower is None and not self._closed:
            from odradek.server.metadata_follower import MetadataFollower

            self._follower = MetadataFollower(self, self._world, self._bootstrap_servers)
            self.spawn(self._follower.run())

    @property
    def voter_changes(self) -> VoterChanges:
        """What a leader does to change the voters."""
        if self._voter_changes is None:
            from odradek.server.voter_changes import VoterChanges

            self._voter_changes = VoterChanges(self._world, self)
        return self._voter_changes

    def leader_changed(self) -> asyncio.Future[None]:
        """Done when leader, epoch or address is another than now."""
        if self._changed is None or self._changed.done():
            self._changed = asyncio.get_running_loop().create_future()
        return self._changed

    def wake(self) -> None:
        """There is something for those who wait for the log's end or its high watermark to move."""
        parked, self._parked = self._parked, []
        for waiter in parked:
            if not waiter.done():
                waiter.set_result(True)

    def park(self, waiter: Expiring) -> None:
        """Have `waiter` woken with the next change."""
        if len(self._parked) > 64:
            self._parked = [each for each in self._parked if not each.done()]
        self._parked.append(waiter)

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
                self._write(batches, epoch)
            except KafkaError:
                if not self.raft.is_lone_voter:  # Others may have room.
                    self.spawn(self._step(self._give_way))
                raise
            self.wake()
        elif not self.raft.is_lone_voter:
            return
        end_offset = self.log.log_end_offset
        await self._sync_own()
        if self.raft.high_watermark >= end_offset and not self._replay.is_busy:
            await self._replay.run(self._committed_end_offset)
        else:
            await self._until(end_offset, epoch)

    def _give_way(self, now_ms: int) -> None:
        if self.raft.is_leader:
            log.error("This node cannot lead: no space left in %s", self.log.directory)
            self.raft.resign(now_ms)

    def _write(self, batches: Sequence[Sequence[Message]], epoch: LeaderEpoch) -> None:
        now_ms = self._world.clock.now_ms()
        offset: int = self.log.log_end_offset
        built: list[bytearray] = []
        written: list[Written] = []
        for records in batches:
            for start in range(0, len(records), MAX_RECORDS_PER_BATCH):
                part = records[start : start + MAX_RECORDS_PER_BATCH]
                framed = [Record(value=self._encode(record)) for record in part]
                built.append(build_batch(framed, base_offset=offset, leader_epoch=epoch, timestamp=now_ms))
                written.append(Written(offset, offset + len(part), part, epoch, now_ms))
                offset += len(part)
        self.log.append(built, now_ms)
        self._replay.wrote(written)
        self._replay.grown(sum(len(batch) for batch in built))
        self._note_busy()

    def _encode(self, record: Message) -> bytes:
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
            self._write_version = record.feature_level
        return encode_record(record, self._write_version)

    def _append_control(self, messages: Sequence[Message]) -> Offset:
        """Where the batch begins; KafkaError on a full disk."""
        base_offset = self.log.log_end_offset
        now_ms = self._world.clock.now_ms()
        records = [control_record(message) for message in messages]
        batch = build_batch(
            records, base_offset=base_offset, leader_epoch=self.raft.epoch, timestamp=now_ms, control=True
        )
        self.log.append([batch], now_ms)
        for delta, message in enumerate(messages):
            self._note_control_record(base_offset + delta, message)
        self.raft.membership_changed()
        self.wake()
        return base_offset

    def append_membership(self, records: Sequence[Message]) -> Offset:
        """Another voter set, as the active leader; it counts from now on. Where the records end."""
        assert self.is_active
        self._append_control(records)
        self.spawn(self._sync_own())
        self._set_timer()
        self._note_busy()
        return self.log.log_end_offset

    async def _sync_own(self) -> None:
        epoch = self.raft.epoch
        end_offset = await self.log.sync()
        if self.raft.is_leader and self.raft.epoch == epoch and self.raft.synced(end_offset):
            self._advanced()

    async def _until(self, end_offset: int, epoch: LeaderEpoch) -> None:
        if self._replay.applied < end_offset and not (self.raft.is_leader and self.raft.epoch == epoch):
            raise not_controller()
        await self._replay.until(end_offset, epoch)

    async def committed(self, end_offset: Offset) -> None:
        """Wait until everything below is committed in the epoch this node leads; NOT_CONTROLLER if it ends before."""
        await self._until(end_offset, self.raft.epoch)

    async def caught_up(self) -> None:
        """Come back once all that the leader has committed by now is replayed here."""
        await self.in_touch()
        await self._replay.until(self.raft.high_watermark, None)

    async def in_touch(self) -> None:
        """Come back once a leader has said what is committed."""
        while self.raft.high_watermark < 0 and not self.is_active:
            waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self.park(waiter)
            await waiter

    def _committed_end_offset(self) -> int:
        high_watermark, end_offset = self.raft.high_watermark, self.log.log_end_offset
        return high_watermark if high_watermark < end_offset else end_offset

    def _advanced(self) -> None:
        """The high watermark may have moved: tell who waits, and replay."""
        if self.raft.high_watermark > self.log.high_watermark:
            self.log.committed(self.raft.high_watermark)
            self.wake()
        replay = self._replay
        if replay.applied >= self._committed_end_offset() or replay.is_busy or self._replays_soon:
            return
        if self.raft.is_lone_voter and not replay.is_awaited:
            return  # A lone voter's append replays what it wrote itself.
        self._replays_soon = True
        asyncio.get_running_loop().call_soon(self._replay_committed)

    def _replay_committed(self) -> None:
        """Without a task, unless something that was committed takes time to be carried out."""
        self._replays_soon = False
        if self._closed or self._replay.is_busy:
            return
        replaying = self._replay.run(self._committed_end_offset)
        try:
            awaited = replaying.send(None)
        except StopIteration:
            return
        except Exception as failure:  # noqa: BLE001 - whatever it is, this node cannot go on
            self.on_failure(failure)
        else:
            self.spawn(resume(replaying, awaited))

    def _maybe_activate(self) -> None:
        raft = self.raft
        if raft.is_leader and self._active_epoch != raft.epoch and self._replay.applied > self._epoch_start_offset >= 0:
            self._active_epoch = raft.epoch
            self._write_version = self.image.features.metadata_version
            log.info("This node is the active controller of epoch %d", raft.epoch)
            self._note_busy()
            self.on_leadership(raft.epoch)

    def _note_control_batch(self, header: BatchHeader, batch: memoryview) -> None:
        for delta, record in enumerate(decode_records(batch)):
            self._note_control_record(header.base_offset + delta, read_control_record(record))

    def _note_control_record(self, offset: int, message: Message | None) -> None:
        match message:
            case KRaftVersionRecord():
                self.membership.level_appended(offset, message.kraft_version)
            case VotersRecord():
                self.membership.voters_appended(offset, recorded_voters(message, self.listener_name))
            case _:
                pass

    # An idle leader.

    def _note_busy(self) -> None:
        """Write something when nothing was written for a while: so that everybody's lag can be told (KIP-835)."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        interval_ms = self.settings.max_idle_interval_ms
        if interval_ms > 0 and not self._closed and not self.raft.is_lone_voter:
            loop = asyncio.get_running_loop()
            self._idle_timer = loop.call_later(interval_ms / 1000, self._write_idle)

    def _write_idle(self) -> None:
        self._idle_timer = None
        if self.is_active and self.image.features.metadata_version:
            self.spawn(self._append_idle())

    async def _append_idle(self) -> None:
        try:
            await self.append([[NoOpRecord()]])
        except KafkaError:
            self._note_busy()  # A full disk, or another leader by now.

    # Following: what `MetadataFollower` has fetched.

    async def take_records(self, records: memoryview, high_watermark: int) -> None:
        """Records from the leader, on the device before the next fetch says so. The caller has the turn.

        That of a node that will never vote counts for nothing: what it loses with its power, it fetches again.
        """
        start_offset = self.log.log_end_offset
        if len(records):
            self.log.append([bytearray(records)], self._world.clock.now_ms())
            for header, batch in self.log.batches(start_offset, self.log.log_end_offset):
                if header.is_control:
                    self._note_control_batch(header, batch)
                    self.raft.membership_changed()
            if self.raft.may_vote:
                await self.log.sync()
        self.raft.fetch_accepted(high_watermark, self._world.clock.monotonic_ms())
        await self.carry_out()

    def take_nothing(self, high_watermark: int) -> None:
        """The leader has nothing new; nobody has the turn, so that nothing else is to be carried out."""
        self.raft.fetch_accepted(high_watermark, self._world.clock.monotonic_ms())
        self._advanced()
        self._set_timer()

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
        self.raft.fetch_accepted(snapshot_id.end_offset, self._world.clock.monotonic_ms())
        await self.carry_out()

    def note_fetch(self) -> None:
        """A replica's fetch may have moved the high watermark; a lone voter's may wait for the first commit."""
        high_watermark = self.raft.high_watermark
        if high_watermark > self.log.high_watermark:
            self._advanced()
        elif high_watermark < 0 and self.raft.is_lone_voter:
            self.spawn(self._sync_own())

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
        for timer in (self._timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        async with self.turn, self.log.device:  # A worker may be in the middle of what it was given.
            for task in list(self._tasks):
                task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        for connected in (self._peers, self._follower, self._voter_changes):
            if connected is not None:
                connected.close()
        self.wake()
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


def _is_pre_vote(request: Message) -> bool:
    return isinstance(request, VoteRequest) and request.topics[0].partitions[0].pre_vote
