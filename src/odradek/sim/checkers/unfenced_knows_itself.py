"""A broker is unfenced only once it has seen its own registration.

Before, it cannot know what it leads, and only a heartbeat of an older incarnation could have asked for it.
"""

from __future__ import annotations

from odradek.ids import Uuid
from odradek.metadata.image.cluster import ClusterImage
from odradek.sim.history import Committed, History


def check(history: History) -> list[str]:
    seen: dict[Uuid | None, int] = {}
    judged: dict[int, ClusterImage] = {}
    """The newest of each node: what it says stays as true as it was."""
    told: set[tuple[int, int]] = set()
    broken = []
    for event in history.events:
        if isinstance(event, Committed):
            offset = event.image.provenance.offset
            seen[event.incarnation_id] = max(seen.get(event.incarnation_id, -1), offset)
            if judged.get(event.node_id) is event.image.cluster:
                continue
            judged[event.node_id] = event.image.cluster
            for broker in event.image.cluster.brokers.values():
                registration = broker.broker_id, broker.broker_epoch
                known = seen.get(broker.incarnation_id, -1)
                if broker.fenced or registration in told or known >= broker.broker_epoch:
                    continue
                told.add(registration)
                broken.append(
                    f"broker {broker.broker_id} is unfenced at offset {offset} in epoch {broker.broker_epoch}, "
                    f"and has itself seen no more than offset {known}"
                )
    return broken
