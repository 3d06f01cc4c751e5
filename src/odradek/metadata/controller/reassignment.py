"""Moving partitions to other brokers: begun, cancelled, listed.

A move first adds the new replicas beside the old ones. Once all that shall stay are in sync, `PartitionChange`
takes the old ones out, whatever change it was that completed the ISR.
"""

from __future__ import annotations

from odradek.decisions import Decision
from odradek.ids import NodeId
from odradek.metadata.controller import decided
from odradek.metadata.controller.elections import Election, Electorate, PartitionChange
from odradek.metadata.controller.topic_rules import TopicRules
from odradek.metadata.controller.topics import check_assignment
from odradek.metadata.image import Image
from odradek.metadata.image.topics import PartitionRegistration, TopicImage
from odradek.metadata.records import PartitionChangeRecord
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from odradek.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def alter_partition_reassignments(
    image: Image, request: AlterPartitionReassignmentsRequest, *, rules: TopicRules
) -> Decision[Message, AlterPartitionReassignmentsResponse]:
    """Begin or, where no replicas are named, cancel moves; each partition on its own."""
    electorate = Electorate(image)
    records: list[Message] = []
    responses = []
    for topic in request.topics:
        results = []
        for asked in topic.partitions:
            code, message = ErrorCode.NONE, None
            try:
                change = _change(
                    image, topic.name, asked, electorate, rules, grow=request.allow_replication_factor_change
                )
                if change is not None:
                    records.append(change)
            except KafkaError as refused:
                code, message = refused.code, refused.message
            results.append(
                ReassignablePartitionResponse(
                    partition_index=asked.partition_index, error_code=code, error_message=message
                )
            )
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=results))
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, responses=responses
    )
    return decided(records, response)


def list_partition_reassignments(
    image: Image, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """The moves under way, of the partitions asked for or of all."""
    topics = []
    if request.topics is None:
        for topic in image.topics.by_name.values():
            topics.append(_ongoing(topic, range(len(topic.partitions))))
    else:
        for asked in request.topics:
            known = image.topics.by_name.get(asked.name)
            if known is not None:
                topics.append(_ongoing(known, asked.partition_indexes))
    return ListPartitionReassignmentsResponse(topics=[topic for topic in topics if topic.partitions])


def is_moving(partition: PartitionRegistration) -> bool:
    return bool(partition.removing_replicas or partition.adding_replicas)


def _ongoing(topic: TopicImage, indexes: range | list[int]) -> OngoingTopicReassignment:
    moving = [
        OngoingPartitionReassignment(
            partition_index=index,
            replicas=list(topic.partitions[index].replicas),
            adding_replicas=list(topic.partitions[index].adding_replicas),
            removing_replicas=list(topic.partitions[index].removing_replicas),
        )
        for index in indexes
        if 0 <= index < len(topic.partitions) and is_moving(topic.partitions[index])
    ]
    return OngoingTopicReassignment(name=topic.name, partitions=moving)


def _change(
    image: Image,
    name: str,
    asked: ReassignablePartition,
    electorate: Electorate,
    rules: TopicRules,
    *,
    grow: bool,
) -> PartitionChangeRecord | None:
    topic = image.topics.by_name.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    index = asked.partition_index
    if not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    partition = topic.partitions[index]
    change = PartitionChange(electorate, topic.topic_id, index, partition, min_isr=rules.min_isr(topic, partition))
    if asked.replicas is None:
        _cancel(change, partition, name=f"{name}:{index}", unclean=rules.unclean(topic))
    else:
        target = tuple(map(NodeId, asked.replicas))
        check_assignment(image.cluster, target, None)
        if not grow:
            _check_factor(partition, target)
        _redirect(change, partition, target)
    return change.record()


def _redirect(change: PartitionChange, partition: PartitionRegistration, target: tuple[NodeId, ...]) -> None:
    """To the target, whatever move is under way.

    Who was being added and is still wanted is added still; who is not wanted any more must not be waited for: it may be
    dead. Kafka keeps the old lists where the new ones are empty, so such a move never ends, or removes who shall stay
    (ADR 14).
    """
    there = tuple(each for each in partition.replicas if each not in partition.adding_replicas)
    change.removing_replicas = tuple(sorted(each for each in partition.replicas if each not in target))
    change.adding_replicas = tuple(sorted(each for each in target if each not in there))
    change.replicas = (*target, *change.removing_replicas)


def _cancel(change: PartitionChange, partition: PartitionRegistration, *, name: str, unclean: bool) -> None:
    """Back to the replicas from before; those that were being added go, even where they alone are in sync."""
    if not is_moving(partition):
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = tuple(each for each in partition.replicas if each not in partition.adding_replicas)
    isr = tuple(each for each in partition.isr if each not in partition.adding_replicas)
    if not replicas:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Invalid replica assignment: addingReplicas contains all replicas."
        )
    if not isr:
        if not unclean:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {name} because it would require an unclean leader "
                "election.",
            )
        isr = replicas[:1]
    if unclean:
        change.election = Election.UNCLEAN
    change.replicas, change.isr = replicas, isr
    change.removing_replicas = change.adding_replicas = ()


def _check_factor(partition: PartitionRegistration, target: tuple[NodeId, ...]) -> None:
    count = sum(replica not in partition.removing_replicas for replica in partition.replicas)
    if count != len(target):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {count} to {len(target)}",
        )
