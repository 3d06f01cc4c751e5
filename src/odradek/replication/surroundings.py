"""What all partitions of a node know of the cluster around them."""

from __future__ import annotations

from odradek.ids import NodeId

NO_BROKER_EPOCH = -1
DEFAULT_MAX_LAG_MS = 30_000


class Surroundings:
    """Who is there, in which incarnation, and how long a follower may lag. One object for all, kept up to date."""

    __slots__ = ("active", "broker_epoch", "max_lag_ms", "registered")

    def __init__(self, *, max_lag_ms: int = DEFAULT_MAX_LAG_MS) -> None:
        self.broker_epoch = NO_BROKER_EPOCH
        """This node's own."""
        self.registered: dict[NodeId, int] = {}
        """The epochs of all brokers."""
        self.active: dict[NodeId, None] = {}
        """Brokers that are neither fenced nor shutting down."""
        self.max_lag_ms = max_lag_ms

    def knows(self, replica: NodeId, broker_epoch: int) -> bool:
        """Whether that is the broker's present incarnation: not one that was replaced, nor somebody in its name."""
        return broker_epoch != NO_BROKER_EPOCH and self.registered.get(replica) == broker_epoch

    def may_join(self, replica: NodeId, broker_epoch: int) -> bool:
        """Whether the controller would let this incarnation of a broker into an ISR (KIP-841, KIP-903)."""
        return replica in self.active and self.registered.get(replica) == broker_epoch
