"""Brokers that were fenced a moment ago, which Metadata names a little longer.

A client that hears in one answer that a leader has moved and that its broker is gone has to do two things at once, and
librdkafka then does neither for a second: it takes the partition from its new leader again as it lets go of the broker.
Told of the new leader first, it moves on at once. To every other client it is as if the answer were a second old.
"""

from __future__ import annotations

from odradek.ids import NodeId
from odradek.metadata.image.cluster import BrokerRegistration, ClusterImage
from odradek.ports import Clock

NAMED_FOR_MS = 2_000


class Departures:
    """Who went when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gone: dict[NodeId, tuple[int, BrokerRegistration]] = {}
        """Until when they are named, and how they were registered."""

    def note(self, before: ClusterImage, after: ClusterImage) -> None:
        """Compare two images of the cluster."""
        now_ms = self._clock.monotonic_ms()
        self._gone = {
            broker_id: (end_ms, broker)
            for broker_id, (end_ms, broker) in self._gone.items()
            if end_ms > now_ms and _is_fenced(after, broker_id)
        }
        for broker_id, broker in before.brokers.items():
            if not broker.fenced and _is_fenced(after, broker_id):
                self._gone[broker_id] = (now_ms + NAMED_FOR_MS, broker)

    def still_named(self) -> list[BrokerRegistration]:
        if not self._gone:
            return []
        now_ms = self._clock.monotonic_ms()
        return [broker for end_ms, broker in self._gone.values() if end_ms > now_ms]


def _is_fenced(cluster: ClusterImage, broker_id: NodeId) -> bool:
    broker = cluster.brokers.get(broker_id)
    return broker is not None and broker.fenced
