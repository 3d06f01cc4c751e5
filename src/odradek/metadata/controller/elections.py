"""Who leads a partition."""

from __future__ import annotations

from collections.abc import Iterator

from odradek.ids import NO_NODE, NodeId, Uuid
from odradek.metadata.image import Image
from odradek.metadata.image.topics import RECOVERED, PartitionRegistration
from odradek.metadata.records import PartitionChangeRecord
from odradek.protocol.codec import Message


def leaders_after_unfencing(image: Image, broker_id: NodeId) -> Iterator[Message]:
    """Partitions that the returning broker shall lead: those without a leader, and those it led before it went."""
    for topic in image.topics.by_id.values():
        for index, partition in enumerate(topic.partitions):
            if partition.leader in (NO_NODE, broker_id) and _may_lead(partition, broker_id):
                yield _elect(topic.topic_id, index, partition, broker_id)


def _may_lead(partition: PartitionRegistration, broker_id: NodeId) -> bool:
    if broker_id in partition.isr or broker_id in partition.elr:
        return True
    # Nobody in sync is left, and this one was the last to be (KIP-966).
    return not partition.isr and not partition.elr and partition.last_known_elr == (broker_id,)


def _elect(topic_id: Uuid, index: int, partition: PartitionRegistration, leader: NodeId) -> PartitionChangeRecord:
    """Only what changes is named; an ISR that does not hold the new leader starts over with it."""
    return PartitionChangeRecord(
        partition_id=index,
        topic_id=topic_id,
        leader=leader,
        isr=None if leader in partition.isr else [leader],
        eligible_leader_replicas=[] if partition.elr else None,
        last_known_elr=[] if partition.last_known_elr else None,
        leader_recovery_state=-1 if partition.leader_recovery_state == RECOVERED else RECOVERED,
    )
