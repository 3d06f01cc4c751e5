"""A fenced broker leads nothing, and neither does one that is not registered."""

from __future__ import annotations

from odradek.metadata.image import Image
from odradek.sim.history import Committed, History

NOBODY = -1


def check(history: History) -> list[str]:
    """One node's image speaks for all of the same offset."""
    newest = -1
    broken = []
    for event in history.events:
        if isinstance(event, Committed) and event.image.provenance.offset > newest:
            newest = event.image.provenance.offset
            broken += [f"{each} at offset {newest}" for each in _wrongly_led(event.image)]
    return broken


def _wrongly_led(image: Image) -> list[str]:
    brokers = image.cluster.brokers
    may_lead = {broker_id for broker_id, broker in brokers.items() if not broker.fenced} | {NOBODY}
    return [
        f"{topic.name}-{index} is led by broker {partition.leader}, which is "
        + ("fenced" if partition.leader in brokers else "not registered")
        for topic in image.topics.by_name.values()
        for index, partition in enumerate(topic.partitions)
        if partition.leader not in may_lead
    ]
