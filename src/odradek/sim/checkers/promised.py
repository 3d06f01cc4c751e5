"""What topics that operators change still promise, by what the cluster had agreed on when something went wrong.

A topic with less than two in sync at some time, or without eligible leaders (KIP-966), may lose what a loss of power
takes from one of its replicas; any other one what two take before its ISR has been full again. An unclean election may
take everything, if it was allowed. What clients heard of such a partition is left out of the history then, for good.
"""

from __future__ import annotations

from odradek.ids import NodeId
from odradek.metadata.features import ELIGIBLE_LEADER_REPLICAS
from odradek.metadata.image import Image
from odradek.metadata.image.topics import RECOVERING, PartitionRegistration, TopicImage
from odradek.sim.history import (
    Acknowledged,
    Bounds,
    Committed,
    Event,
    History,
    Partition,
    PowerLost,
    Read,
    Rejected,
    Unpromised,
)

DEFAULT_MIN_INSYNC = "2"


def promised(history: History) -> History:
    """The history without what was heard of partitions that may have lost it."""
    operated = any(isinstance(event, Acknowledged) and event.partition.topic_id for event in history.events)
    voided = _voided(history) if operated else {}
    if not voided:
        return history
    kept = History(history.durable_topics, synced=history.synced)
    kept.observers = history.observers
    kept.events = [Unpromised() if _is_of(event, voided) else event for event in history.events]
    return kept


def _is_of(event: Event, voided: dict[Partition, None]) -> bool:
    if isinstance(event, Read | Bounds) and event.final:
        return False
    return isinstance(event, Acknowledged | Rejected | Read | Bounds) and event.partition in voided


class _Promise:
    """One partition as the newest image has it, and whether it could stand the loss of one replica's power."""

    def __init__(self) -> None:
        self.registration: PartitionRegistration | None = None
        self.weak = False
        self.lossy: tuple[NodeId, int] | None = None
        """Who has lost power, and its broker epoch then, until the ISR has been full since."""


def _voided(history: History) -> dict[Partition, None]:
    promises: dict[Partition, _Promise] = {}
    voided: dict[Partition, None] = {}
    newest: Image | None = None
    for event in history.events:
        if isinstance(event, Committed):
            if newest is None or event.image.provenance.offset > newest.provenance.offset:
                _follow(promises, newest, event.image, voided)
                newest = event.image
        elif isinstance(event, PowerLost) and newest is not None and not history.synced:
            _lose_power(promises, newest, NodeId(int(event.node.rpartition("-")[2])), voided)
    return voided


def _follow(
    promises: dict[Partition, _Promise], before: Image | None, image: Image, voided: dict[Partition, None]
) -> None:
    with_elr = image.features.level(ELIGIBLE_LEADER_REPLICAS) > 0
    for topic in image.topics.by_id.values():
        unclean = any(
            known.configs.of_topic(topic.name).get("unclean.leader.election.enable") == "true"
            for known in (before, image)
            if known is not None
        )
        minimum = _minimum(image, topic)
        forgets = before is not None and _minimum(before, topic) != minimum
        for index, new in enumerate(topic.partitions):
            partition = Partition(topic.name, index, topic.topic_id)
            promise = promises.setdefault(partition, _Promise())
            if unclean and promise.registration is not None and _may_be_unclean(promise.registration, new):
                voided[partition] = None
            if forgets and promise.lossy is not None and len(new.isr) == 1 and promise.lossy[0] in new.isr:
                voided[partition] = None  # Those who were eligible beside it are not any more (ADR 14).
            promise.registration = new
            if not with_elr or min(minimum, len(new.replicas)) < 2:
                promise.weak = True
                if promise.lossy is not None and promise.lossy[0] in new.isr:
                    voided[partition] = None  # Moved, perhaps, to nobody but the one that has lost the end.
            elif set(new.isr) == set(new.replicas):
                promise.weak = False
            if promise.lossy is not None and set(new.isr) == set(new.replicas):
                broker = image.cluster.brokers.get(promise.lossy[0])
                returned = broker is not None and broker.broker_epoch > promise.lossy[1] and not broker.fenced
                if returned or promise.lossy[0] not in new.replicas:
                    promise.lossy = None


def _minimum(image: Image, topic: TopicImage) -> int:
    return int(image.configs.of_topic(topic.name).get("min.insync.replicas") or DEFAULT_MIN_INSYNC)


def _may_be_unclean(old: PartitionRegistration, new: PartitionRegistration) -> bool:
    """An image may be several changes later than the one before it: what cannot be told apart counts as unclean."""
    if new.leader_recovery_state == RECOVERING or new.leader_epoch > old.leader_epoch + 1:
        return True
    return new.leader >= 0 and new.leader not in (old.leader, *old.isr, *old.elr)


def _lose_power(
    promises: dict[Partition, _Promise], image: Image, broker_id: NodeId, voided: dict[Partition, None]
) -> None:
    broker = image.cluster.brokers.get(broker_id)
    for partition, promise in promises.items():
        if promise.registration is None or broker_id not in promise.registration.replicas:
            continue
        if promise.weak or (promise.lossy is not None and promise.lossy[0] != broker_id):
            voided[partition] = None
        promise.lossy = broker_id, -1 if broker is None else broker.broker_epoch
