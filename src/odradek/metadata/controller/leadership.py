"""Many partitions at once: what becomes of them when a broker comes or goes, and elections that nobody asked for.

Each of these looks at every partition once, which takes a few milliseconds for 10,000 of them; that is paid when a
broker comes or goes, not while it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from odradek.ids import NO_NODE, NodeId, Uuid
from odradek.metadata.controller.elections import Election, Electorate, PartitionChange
from odradek.metadata.controller.topic_rules import TopicRules
from odradek.metadata.image import Image
from odradek.metadata.image.topics import NO_LEADER_CHANGE, PartitionRegistration, TopicImage, forgotten_elr
from odradek.metadata.records import PartitionChangeRecord
from odradek.protocol.codec import Message

MAX_ELECTIONS_AT_ONCE = 1_000
"""So many elections that nobody asked for are made at a time: requests come in between."""

Partitions: TypeAlias = Iterable[tuple[TopicImage, int]]


def leads_anything(image: Image, broker_id: NodeId) -> bool:
    return any(partition.leader == broker_id for topic in image.topics.by_id.values() for partition in topic.partitions)


def in_isr(image: Image, broker_id: NodeId) -> Partitions:
    return _where(image, lambda partition: broker_id in partition.isr)


def in_elr(image: Image, broker_id: NodeId) -> Partitions:
    return _where(image, lambda partition: broker_id in partition.elr)


def without_leader(image: Image) -> Partitions:
    return _where(image, lambda partition: partition.leader == NO_NODE)


def in_directory(image: Image, broker_id: NodeId, directory: Uuid) -> Partitions:
    return _where(
        image,
        lambda partition: directory in partition.directories and partition.directory(broker_id) == directory,
    )


def changed_partitions(
    image: Image,
    rules: TopicRules,
    partitions: Partitions,
    *,
    leaving: NodeId = NO_NODE,
    coming: NodeId = NO_NODE,
    unclean: NodeId = NO_NODE,
) -> Iterator[Message]:
    """The partitions after a broker has left (the ISR, and whatever it leads), has come, or has lost its tail."""
    gone = unclean if leaving == NO_NODE else leaving
    electorate = Electorate(image, leaving=gone, coming=coming)
    topic_before: TopicImage | None = None
    min_isr, election = 0, Election.ONLINE
    decided: dict[tuple[object, ...], PartitionChangeRecord | None] = {}
    for topic, index in partitions:
        if topic is not topic_before:
            topic_before = topic
            min_isr = rules.min_isr(topic)
            election = Election.UNCLEAN if rules.unclean(topic) else Election.ONLINE
        partition = topic.partitions[index]
        alike = (*_what_counts(partition), min_isr, election)
        if alike not in decided:
            change = PartitionChange(electorate, topic.topic_id, index, partition, min_isr=min_isr)
            change.election = election
            change.unclean_replica = unclean
            if gone != NO_NODE:
                change.isr = tuple(replica for replica in partition.isr if replica != gone)
            decided[alike] = change.record()
        record = decided[alike]
        if record is not None:
            yield _for_partition(record, topic.topic_id, index)


def _what_counts(partition: PartitionRegistration) -> tuple[object, ...]:
    """All that a change depends on: of the partitions of a few brokers most are alike, and decided once."""
    return (
        partition.replicas,
        partition.isr,
        partition.leader,
        partition.elr,
        partition.last_known_elr,
        partition.directories,
        partition.removing_replicas,
        partition.adding_replicas,
        partition.leader_recovery_state,
    )


def _for_partition(record: PartitionChangeRecord, topic_id: Uuid, index: int) -> PartitionChangeRecord:
    return PartitionChangeRecord(
        partition_id=index,
        topic_id=topic_id,
        isr=record.isr,
        leader=record.leader,
        replicas=record.replicas,
        removing_replicas=record.removing_replicas,
        adding_replicas=record.adding_replicas,
        leader_recovery_state=record.leader_recovery_state,
        directories=record.directories,
        eligible_leader_replicas=record.eligible_leader_replicas,
        last_known_elr=record.last_known_elr,
    )


def preferred_leaders(image: Image, rules: TopicRules) -> list[Message]:
    """Elections that bring leaders back to the first replicas, as far as those are in sync; at most a thousand."""
    electorate = Electorate(image)
    records: list[Message] = []
    for topic, index in _where(image, lambda partition: partition.leader != partition.replicas[0]):
        if len(records) >= MAX_ELECTIONS_AT_ONCE:
            break
        partition = topic.partitions[index]
        change = PartitionChange(electorate, topic.topic_id, index, partition, min_isr=rules.min_isr(topic))
        change.election = Election.PREFERRED
        record = change.record()
        if record is not None:
            records.append(record)
    return records


def unclean_leaders(image: Image, rules: TopicRules) -> list[Message]:
    """Leaders for partitions that have none, where their topics allow any; at most a thousand."""
    electorate = Electorate(image)
    records: list[Message] = []
    for topic, index in without_leader(image):
        if len(records) >= MAX_ELECTIONS_AT_ONCE:
            break
        if not rules.unclean(topic):
            continue
        partition = topic.partitions[index]
        change = PartitionChange(electorate, topic.topic_id, index, partition, min_isr=rules.min_isr(topic))
        change.election = Election.UNCLEAN
        record = change.record()
        if record is not None:
            records.append(record)
    return records


def forgotten_eligible_leaders(topics: Iterable[TopicImage]) -> Iterator[Message]:
    """Nobody is eligible any more, except where nobody is in sync, and so nobody leads.

    Nothing is acknowledged there meanwhile, and whoever is elected is so under the rules of then. A change for each
    partition rather than Kafka's ClearElrRecord, which leaves those without a leader for good (ADR 14).
    """
    for topic in topics:
        for index, partition in enumerate(topic.partitions):
            if partition.isr and (partition.elr or partition.last_known_elr):
                yield forgotten_elr(topic.topic_id, index)


def impossible_eligible_leaders(image: Image, rules: TopicRules) -> Iterator[Message]:
    """What earlier versions left in ELRs and no version of now would: it may name replicas that lack what is committed.

    While as many are in sync as `min.insync.replicas` asks for, nobody else is eligible: such an ELR was cleared once
    and came back. Nor is a broker that is no replica: its log was deleted, and so it may be that of others beside it,
    if they are replicas again. Where nobody is in sync those that are replicas stay, as there is nobody else.
    """
    if not Electorate(image).with_elr:
        return
    for topic in image.topics.by_id.values():
        for index, partition in enumerate(topic.partitions):
            if not partition.elr:
                continue
            replicas = [replica for replica in partition.elr if replica in partition.replicas]
            if len(partition.isr) >= rules.min_isr(topic) or (partition.isr and len(replicas) < len(partition.elr)):
                yield forgotten_elr(topic.topic_id, index)
            elif len(replicas) < len(partition.elr):
                yield PartitionChangeRecord(
                    partition_id=index,
                    topic_id=topic.topic_id,
                    leader=NO_LEADER_CHANGE,
                    eligible_leader_replicas=list(replicas),
                )


def _where(image: Image, wanted: Callable[[PartitionRegistration], bool]) -> Partitions:
    for topic in image.topics.by_id.values():
        for index, partition in enumerate(topic.partitions):
            if wanted(partition):
                yield topic, index
