"""Adding partitions to topics that exist."""

from __future__ import annotations

from odradek.decisions import Decision
from odradek.ids import NodeId
from odradek.metadata.controller import MAX_PARTITIONS_PER_REQUEST, decided
from odradek.metadata.controller.placement import place
from odradek.metadata.controller.topics import assigned_partition, new_partitions
from odradek.metadata.image import Image
from odradek.metadata.image.topics import PartitionRegistration, TopicImage, partition_record
from odradek.ports import Entropy
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def create_partitions(
    image: Image, request: CreatePartitionsRequest, *, entropy: Entropy
) -> Decision[Message, CreatePartitionsResponse]:
    """Grow every topic that can grow, in one batch; each of the others is told why not."""
    records: list[Message] = []
    results: list[CreatePartitionsTopicResult] = []
    names = [topic.name for topic in request.topics]
    for topic in request.topics:
        code: ErrorCode = ErrorCode.NONE
        message: str | None = None
        try:
            if names.count(topic.name) > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            before = image.topics.by_name.get(topic.name)
            if before is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                added = _added(image, topic, before, entropy)
                if len(records) + len(added) > MAX_PARTITIONS_PER_REQUEST:
                    raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
                for index, partition in enumerate(added, start=len(before.partitions)):
                    records.append(partition_record(before.topic_id, index, partition))
        except KafkaError as refused:
            code, message = refused.code, refused.message
        if not any(result.name == topic.name for result in results):
            results.append(CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message))
    return decided(() if request.validate_only else records, CreatePartitionsResponse(results=results))


def _added(
    image: Image, topic: CreatePartitionsTopic, before: TopicImage, entropy: Entropy
) -> list[PartitionRegistration]:
    count = len(before.partitions)
    if topic.count == count:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if topic.count < count:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {count} partition(s); {topic.count} would not be an increase.",
        )
    additional = topic.count - count
    if additional > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    replication_factor = len(before.partitions[0].replicas)
    if topic.assignments is None:
        assignments = place(
            image.cluster.brokers.values(),
            partition_count=additional,
            replication_factor=replication_factor,
            entropy=entropy,
        )
        return new_partitions(image.cluster, assignments, replication_factor=replication_factor)
    if len(topic.assignments) != additional:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only {len(topic.assignments)} "
            "assignment(s) were specified.",
        )
    return [
        assigned_partition(
            image.cluster,
            tuple(map(NodeId, assignment.broker_ids)),
            index=index,
            replication_factor=replication_factor,
        )
        for index, assignment in enumerate(topic.assignments, start=count)
    ]
