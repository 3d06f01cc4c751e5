"""The replica of one partition on this node."""

from __future__ import annotations

from odradek.ids import NO_EPOCH, NO_NODE, LeaderEpoch, NodeId
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.log import AppendInfo, Log
from odradek.storage.validation import Origin
from odradek.values import value


@value
class PartitionState:
    """What the cluster agreed on about a partition, as far as its replicas need it."""

    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]


NOBODY = PartitionState(leader=NO_NODE, leader_epoch=NO_EPOCH, partition_epoch=-1, replicas=(), isr=())


class Partition:
    """One partition's log and this node's part in it."""

    __slots__ = ("is_leader", "log", "node_id", "state")

    def __init__(self, node_id: NodeId, log: Log) -> None:
        self.node_id = node_id
        self.log = log
        self.state = NOBODY
        self.is_leader = False

    def apply(self, state: PartitionState) -> None:
        """Take over what the cluster agreed on."""
        previous, self.state = self.state, state
        self.is_leader = state.leader == self.node_id
        if self.is_leader and state.leader_epoch != previous.leader_epoch:
            self.log.begin_epoch(state.leader_epoch)
            # The only replica: all that it holds is committed.
            self.log.advance_high_watermark(self.log.log_end_offset)

    def require_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Fence a client whose view of the leadership is older or newer than this replica's (KIP-320)."""
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if 0 <= current_leader_epoch != self.state.leader_epoch:
            if current_leader_epoch < self.state.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def append(self, batch: memoryview, *, now_ms: int, origin: Origin = Origin.CLIENT) -> AppendInfo:
        """Append a client's batch and, since no other replica has to hold it first, commit it.

        One that `flush.messages` or `flush.ms` wants synced is committed by `flushed`: as with Kafka, no reader sees
        what a power loss could still take back.
        """
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.log
        info = log.append_as_leader(batch, leader_epoch=self.state.leader_epoch, now_ms=now_ms, origin=origin)
        if not (log.flushes_on_append and log.flush_due(now_ms)):
            log.advance_high_watermark(log.log_end_offset)
        return info

    def flushed(self, offset: int) -> bool:
        """All below this offset is on the device; whether readers may see more now."""
        self.log.flushed(offset)
        return self.is_leader and self.log.advance_high_watermark(offset)
