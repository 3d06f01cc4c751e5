"""What all partitions of a node know of the cluster around them."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.ids import NodeId, Uuid
from odradek.metadata.image.cluster import BrokerRegistration

NO_BROKER_EPOCH = -1
DEFAULT_MAX_LAG_MS = 30_000


class BrokerLiveness:
    """Who is there, in which incarnation, and how long a follower may lag. One object for all, kept up to date."""

    __slots__ = ("active", "broker_epoch", "brokers", "max_lag_ms", "registered")

    def __init__(self, *, max_lag_ms: int = DEFAULT_MAX_LAG_MS) -> None:
        self.broker_epoch = NO_BROKER_EPOCH
        """This node's own."""
        self.brokers: Mapping[NodeId, BrokerRegistration] = {}
        self.registered: dict[NodeId, int] = {}
        """The epochs of all brokers."""
        self.active: dict[NodeId, None] = {}
        """Brokers that are neither fenced nor shutting down."""
        self.max_lag_ms = max_lag_ms

    def learn(self, brokers: Mapping[NodeId, BrokerRegistration]) -> None:
        self.brokers = brokers
        self.registered = {broker_id: broker.broker_epoch for broker_id, broker in brokers.items()}
        self.active = {broker_id: None for broker_id, broker in brokers.items() if broker.active}

    def knows(self, replica: NodeId, broker_epoch: int) -> bool:
        """Whether that is the broker's present incarnation: not one that was replaced, nor somebody in its name."""
        return broker_epoch != NO_BROKER_EPOCH and self.registered.get(replica) == broker_epoch

    def may_join(self, replica: NodeId, broker_epoch: int, directory: Uuid) -> bool:
        """Whether this incarnation of a broker can be in an ISR with what it keeps in that log directory.

        The controller lets none in that is not active (KIP-841) or was replaced (KIP-903). One that has lost the
        directory (KIP-858) is active all the same, but will not fetch.
        """
        if replica not in self.active or self.registered.get(replica) != broker_epoch:
            return False
        broker = self.brokers.get(replica)
        return broker is None or broker.has_online_directory(directory)
