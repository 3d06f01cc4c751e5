"""The replica of one partition on this node."""

from __future__ import annotations

from enum import Enum

from odradek.ids import NO_EPOCH, NO_NODE, NO_OFFSET, NO_TIMESTAMP, LeaderEpoch, NodeId, Offset, Uuid
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.replication.broker_liveness import BrokerLiveness
from odradek.replication.isr import IsrProposal
from odradek.replication.leader import Leadership
from odradek.storage.log import NOT_PLAIN, AppendInfo, Log, Transaction
from odradek.storage.validation import Examined, Origin
from odradek.values import replace, value


@value
class PartitionState:
    """What the cluster agreed on about a partition, as far as its replicas need it."""

    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    is_recovering: bool = False
    """Whether the leader was elected although it was not in sync, and has not settled that yet."""
    directories: tuple[Uuid, ...] = ()
    """The log directory of each of the replicas; none if they are not known."""


class PartitionRole(Enum):
    """What this node is to a partition, which decides how an append is acknowledged."""

    NOT_LEADER = "not leader"
    """Nothing is appended for clients."""
    LEADER = "leader"
    """Of a partition with followers: acks=all waits for them."""
    SOLE_REPLICA = "sole replica"
    """Whatever is appended is committed, whichever acks are asked for."""


NOT_LEADER, LEADER, SOLE_REPLICA = PartitionRole
"""For the hot path, which looks at them with every append."""

NOBODY = PartitionState(leader=NO_NODE, leader_epoch=NO_EPOCH, partition_epoch=-1, replicas=(), isr=())


@value
class FetchStateUpdate:
    """What a follower's fetch brought about."""

    high_watermark_moved: bool
    proposal: IsrProposal | None


_NOTHING = FetchStateUpdate(False, None)
_MOVED = FetchStateUpdate(True, None)
"""Nearly all that fetches bring about: it need not be made for each of them."""


class Partition:
    """One partition's log and this node's part in it."""

    __slots__ = (
        "_counted_end",
        "_epoch_start_offset",
        "_liveness",
        "is_leader",
        "leadership",
        "log",
        "node_id",
        "role",
        "state",
    )

    def __init__(self, node_id: NodeId, log: Log, liveness: BrokerLiveness) -> None:
        self.node_id = node_id
        self.log = log
        self.state = NOBODY
        self.is_leader = False
        self.leadership: Leadership | None = None
        """While this node leads and others follow; the only replica of a partition has nobody to ask."""
        self.role = NOT_LEADER
        self._liveness = liveness
        self._epoch_start_offset = NO_OFFSET
        self._counted_end = log.log_end_offset
        """How much of its own log a leader with followers counts: all of it, but for what must be synced first."""

    def apply(self, state: PartitionState, *, now_ms: int) -> None:
        """Take over what the cluster agreed on, unless an answer of the controller was faster (monotonic time).

        What is known already must not be applied again: a proposal may have gone out since, and who it lets in counts.
        """
        previous = self.state
        new_epoch = state.leader_epoch != previous.leader_epoch
        if not new_epoch and state.partition_epoch <= previous.partition_epoch:
            if self.leadership is not None and state.partition_epoch == previous.partition_epoch:
                self.leadership.in_sync.learn()
                self.advance(now_ms)
            return
        self.state = state
        self.is_leader = state.leader == self.node_id
        if not self.is_leader:
            self.stop_leading()
            return
        if new_epoch:
            self.log.begin_epoch(state.leader_epoch)
            self._epoch_start_offset = self._counted_end = self.log.log_end_offset
            self.leadership = None
        if len(state.replicas) == 1:
            if new_epoch or self.leadership is not None:
                # The only replica: all that it holds is committed.
                self.log.advance_high_watermark(self.log.log_end_offset)
            self.leadership = None
            self.role = SOLE_REPLICA
            return
        self.role = LEADER
        self._lead_others(state, now_ms)

    def stop_leading(self) -> None:
        """Another one leads now, or this replica is given up."""
        self.is_leader = False
        self.leadership = None
        self.role = NOT_LEADER

    def _lead_others(self, state: PartitionState, now_ms: int) -> None:
        if self.leadership is None:
            self._counted_end = self.log.log_end_offset
            self.leadership = Leadership(
                self.node_id,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                replicas=state.replicas,
                directories=state.directories,
                isr=state.isr,
                epoch_start_offset=self._epoch_start_offset,
                inherits=state.leader_epoch > 0 and not state.is_recovering,
                now_ms=now_ms,
            )
        else:
            self.leadership.apply_state(
                partition_epoch=state.partition_epoch,
                replicas=state.replicas,
                directories=state.directories,
                isr=state.isr,
                now_ms=now_ms,
            )
        self.advance(now_ms)

    # Everybody who asks for something.

    def require_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Fence a client whose view of the leadership is older or newer than this replica's (KIP-320)."""
        if 0 <= current_leader_epoch != self.state.leader_epoch:
            self._refuse_epoch(current_leader_epoch)
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def require_replica(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """The same for a reader that a follower will do for (KIP-392)."""
        if 0 <= current_leader_epoch != self.state.leader_epoch:
            self._refuse_epoch(current_leader_epoch)

    def _refuse_epoch(self, current_leader_epoch: int) -> None:
        if current_leader_epoch < self.state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    @property
    def knows_its_end(self) -> bool:
        """Whether what was committed before this leader took over is known to be committed here, too.

        Until then its watermark may be lower than one that a consumer was told before.
        """
        return self.leadership is None or self.log.high_watermark >= self.leadership.epoch_start_offset

    @property
    def low_watermark(self) -> Offset:
        """Where the log starts on all replicas."""
        start = self.log.log_start_offset
        return start if self.leadership is None else self.leadership.low_watermark(start, self._liveness)

    # Appending.

    def append(
        self,
        batch: memoryview,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        acks_all: bool = False,
        examined: Examined | None = None,
        transaction: Transaction = None,
    ) -> AppendInfo:
        """Append a client's batch; `acks_all` (acks=all) needs enough replicas in sync.

        Where no other replica has to hold it first, it is committed. One that `flush.messages` or `flush.ms` wants
        synced is committed by `flushed`: as with Kafka, no reader sees what a power loss could still take back.
        With followers, `note_append` comes next.
        """
        log = self.log
        if self.role is not SOLE_REPLICA:
            leadership = self.leadership
            if leadership is None:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            in_sync, least = leadership.in_sync.committed, log.min_insync_replicas
            if acks_all and len(in_sync) < least and leadership.are_too_few(in_sync, least):
                raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
            return log.append_as_leader(batch, self.state.leader_epoch, now_ms, origin, examined, transaction)
        if origin is Origin.CLIENT and examined is None:
            base_offset = log.append_sole_replica(batch, self.state.leader_epoch, now_ms)
            if base_offset != NOT_PLAIN:
                return AppendInfo(base_offset, log.log_end_offset - 1, NO_TIMESTAMP, log.log_start_offset, False)
        info = log.append_as_leader(batch, self.state.leader_epoch, now_ms, origin, examined, transaction)
        if not (log.flushes_on_append and log.flush_due(now_ms)):
            log.advance_high_watermark(log.log_end_offset)
        return info

    def note_append(self, previous_end: int, now_ms: int, wall_ms: int) -> bool:
        """A partition with followers was appended to; whether the watermark could move, as it can if they lag."""
        assert self.leadership is not None
        log = self.log
        if not (log.flushes_on_append and log.flush_due(wall_ms)):
            self._counted_end = log.log_end_offset
        return self.leadership.note_append(previous_end, log.high_watermark, now_ms) and self.advance(now_ms)

    def flushed(self, offset: int, *, now_ms: int) -> bool:
        """All below this offset is on the device; whether readers may see more now."""
        self.log.flushed(offset)
        if not self.is_leader:
            return False
        if self.leadership is None:
            return self.log.advance_high_watermark(offset)
        self._counted_end = max(self._counted_end, Offset(offset))
        return self.advance(now_ms)

    def outcome(self, end_offset: int) -> ErrorCode | None:
        """What to answer to an acks=all append that ended there; None if its replicas do not have it yet."""
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        log = self.log
        if log.high_watermark < end_offset:
            return None
        leadership = self.leadership
        if leadership is not None and leadership.are_too_few(leadership.in_sync.maximal, log.min_insync_replicas):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    # Followers.

    def require_follower(self, replica_id: NodeId, broker_epoch: int, current_leader_epoch: int) -> Leadership:
        """Let in who is a replica of this partition, in its present incarnation; nobody else's fetch means anything."""
        self.require_leader(current_leader_epoch)
        if not self._liveness.knows(replica_id, broker_epoch):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.leadership is None or replica_id not in self.leadership.followers:
            # Of the right epoch but not a replica: it may know of a reassignment that this node has yet to hear of.
            known = current_leader_epoch >= 0
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if known else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.leadership

    def update_follower_fetch_state(
        self, replica_id: NodeId, fetch_offset: Offset, log_start_offset: Offset, broker_epoch: int, now_ms: int
    ) -> FetchStateUpdate:
        """A follower holds everything before `fetch_offset`, which lies on this leader's history."""
        leadership = self.leadership
        assert leadership is not None
        leadership.followers[replica_id].update_fetch_state(
            fetch_offset, log_start_offset, broker_epoch, self.log.log_end_offset, now_ms
        )
        if replica_id in leadership.in_sync.committed:
            return _MOVED if self.advance(now_ms) else _NOTHING
        proposal = self.catching_up(now_ms, replica_id)
        return FetchStateUpdate(self.advance(now_ms), proposal)

    def advance(self, now_ms: int) -> bool:
        """Move the high watermark as far as it may go; whether it moved."""
        leadership = self.leadership
        assert leadership is not None
        log = self.log
        current = log.high_watermark
        offset = leadership.high_watermark(current, self._counted_end, log.min_insync_replicas, self._liveness, now_ms)
        return offset > current and log.advance_high_watermark(offset)

    # The ISR.

    def catching_up(self, now_ms: int, fetched: NodeId | None = None) -> IsrProposal | None:
        """Ask for an ISR with those who have caught up, if there are any.

        Fetches lead to it, and everything else that may have stood in the way: a broker that was fenced, a proposal
        that was under way. A follower that has all there is does not mention the partition again.
        """
        if self.leadership is None:
            return None
        return self.leadership.expansion(
            high_watermark=self.log.high_watermark,
            leader_end=self.log.log_end_offset,
            liveness=self._liveness,
            now_ms=now_ms,
            fetched=fetched,
        )

    def lagging(self, now_ms: int) -> IsrProposal | None:
        """Ask for an ISR without followers that did not keep up, if there are any."""
        if self.leadership is None:
            return None
        return self.leadership.shrinking(leader_end=self.log.log_end_offset, liveness=self._liveness, now_ms=now_ms)

    def isr_agreed(
        self, proposal: IsrProposal, *, leader_epoch: int, partition_epoch: int, isr: tuple[NodeId, ...], now_ms: int
    ) -> bool:
        """The controller's answer to a proposal; whether the watermark has moved by it."""
        if self.leadership is None or self.leadership.in_sync.proposal is not proposal:
            return False
        if leader_epoch != self.state.leader_epoch or partition_epoch < self.state.partition_epoch:
            return False
        self.state = replace(self.state, isr=isr, partition_epoch=partition_epoch)
        self.leadership.partition_epoch = partition_epoch
        self.leadership.in_sync.agree(isr)
        return self.advance(now_ms)

    def isr_refused(self, proposal: IsrProposal, *, now_ms: int) -> bool:
        """The controller will not have it; whether the watermark has moved now that it does not count."""
        if self.leadership is None or self.leadership.in_sync.proposal is not proposal:
            return False
        self.leadership.in_sync.withdraw()
        return self.advance(now_ms)
