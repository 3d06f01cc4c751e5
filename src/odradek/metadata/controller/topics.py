"""Creating, growing and deleting topics: Kafka's checks in Kafka's order, with Kafka's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from odradek.decisions import Decision
from odradek.ids import NodeId, Uuid
from odradek.metadata.controller import MAX_PARTITIONS_PER_REQUEST, decided, repeated
from odradek.metadata.controller.elections import default_directory
from odradek.metadata.controller.placement import has_uncordoned_directory, place
from odradek.metadata.image import Image
from odradek.metadata.image.cluster import ClusterImage
from odradek.metadata.image.configs import TOPIC_RESOURCE
from odradek.metadata.image.topics import (
    PartitionRegistration,
    new_partition,
    partition_record,
)
from odradek.metadata.records import ConfigRecord, TopicRecord
from odradek.metadata.topic_names import METADATA_TOPIC, collision_key, may_collide, name_error
from odradek.metadata.uuids import random_uuid
from odradek.ports import Entropy
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.values import value

DEFAULT = -1


@value
class TopicSettings:
    """What the controller's own configuration says about new topics."""

    num_partitions: int
    replication_factor: int
    check_configs: Callable[[Mapping[str, str]], None]
    """KafkaError INVALID_CONFIG unless a topic may have these."""
    effective_configs: Callable[[Image, Mapping[str, str]], list[CreatableTopicConfigs]]
    """Every topic-level setting that will be in force, and where it comes from."""


def create_topics(
    image: Image, request: CreateTopicsRequest, *, settings: TopicSettings, entropy: Entropy
) -> Decision[Message, CreateTopicsResponse]:
    """All topics that can be created are, in one batch; each of the others is told why not."""
    results: list[CreatableTopicResult] = []
    records: list[Message] = []
    duplicates = repeated([topic.name for topic in request.topics])
    wanted = [topic for topic in request.topics if topic.name not in duplicates and topic.name != METADATA_TOPIC]
    too_many = sum(_partition_count(topic, settings) for topic in wanted) > MAX_PARTITIONS_PER_REQUEST
    for topic in wanted:
        try:
            if too_many:
                raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
            topic_records, result = _create_topic(image, topic, settings, entropy)
            records += topic_records
            results.append(result)
        except KafkaError as refused:
            results.append(_refusal(topic.name, refused.code, refused.message))
    for name in duplicates:
        results.append(_refusal(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
    if any(topic.name == METADATA_TOPIC for topic in request.topics) and METADATA_TOPIC not in duplicates:
        prohibited = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
        results.append(_refusal(METADATA_TOPIC, ErrorCode.INVALID_REQUEST, prohibited))
    return decided(() if request.validate_only else records, CreateTopicsResponse(topics=results))


def new_partitions(
    cluster: ClusterImage, assignments: Sequence[tuple[NodeId, ...]], *, replication_factor: int
) -> list[PartitionRegistration]:
    """Partitions placed by `place`; refused when nobody who could lead one is alive."""
    partitions = []
    placed: dict[tuple[NodeId, ...], PartitionRegistration] = {}
    for replicas in assignments:
        partition = placed.get(replicas)
        if partition is None:
            isr = tuple(replica for replica in replicas if cluster.is_active(replica))
            if not isr:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"Unable to replicate the partition {replication_factor} time(s): All brokers are currently "
                    "fenced or in controlled shutdown.",
                )
            partition = new_partition(replicas, directories=_directories(cluster, replicas), isr=isr)
            placed[replicas] = partition
        partitions.append(partition)
    return partitions


def assigned_partition(
    cluster: ClusterImage, replicas: tuple[NodeId, ...], *, index: int, replication_factor: int | None
) -> PartitionRegistration:
    """A partition placed by hand; INVALID_REPLICA_ASSIGNMENT when it cannot be."""
    check_assignment(cluster, replicas, replication_factor)
    isr = tuple(replica for replica in replicas if cluster.is_active(replica))
    if not isr:
        raise _wrong_assignment(
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown."
        )
    return new_partition(replicas, directories=_directories(cluster, replicas), isr=isr)


def check_assignment(cluster: ClusterImage, replicas: tuple[NodeId, ...], replication_factor: int | None) -> None:
    """INVALID_REPLICA_ASSIGNMENT unless a partition may have these replicas, as many as its topic's others."""
    if not replicas:
        raise _wrong_assignment("The manual partition assignment includes an empty replica list.")
    before: NodeId | None = None
    for replica in sorted(replicas):
        if replica not in cluster.brokers:
            raise _wrong_assignment(
                f"The manual partition assignment includes broker {replica}, but no such broker is registered."
            )
        if replica == before:
            raise _wrong_assignment(f"The manual partition assignment includes the broker {before} more than once.")
        if not has_uncordoned_directory(cluster.brokers[replica]):
            raise _wrong_assignment(
                f"The manual partition assignment includes broker {replica}, but all its log directories are cordoned."
            )
        before = replica
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _wrong_assignment(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {replication_factor} replica(s)."
        )


def _create_topic(
    image: Image, topic: CreatableTopic, settings: TopicSettings, entropy: Entropy
) -> tuple[list[Message], CreatableTopicResult]:
    _check_name_is_free(image, topic.name)
    configs = _wanted_configs(topic)
    if configs:
        settings.check_configs(configs)
    if topic.assignments:
        partitions = _manual_partitions(image.cluster, topic)
    else:
        partitions = _placed_partitions(image.cluster, topic, settings, entropy)
    topic_id = random_uuid(entropy)
    records: list[Message] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    for name, text in configs.items():
        records.append(ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=name, value=text))
    for index, partition in enumerate(partitions):
        records.append(partition_record(topic_id, index, partition))
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=settings.effective_configs(image, configs),
    )
    return records, result


def _check_name_is_free(image: Image, name: str) -> None:
    if name in image.topics.by_name:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if may_collide(name):
        colliding = image.topics.colliding.get(collision_key(name))
        if colliding:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {colliding[0]}"
            )
    wrong = name_error(name)
    if wrong is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)


def _wanted_configs(topic: CreatableTopic) -> dict[str, str]:
    without_value = [config.name for config in topic.configs if config.value is None]
    if without_value:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(without_value)}"
        )
    return {config.name: config.value for config in topic.configs if config.value is not None}


def _manual_partitions(cluster: ClusterImage, topic: CreatableTopic) -> list[PartitionRegistration]:
    for field, given in (("replication factor", topic.replication_factor), ("numPartitions", topic.num_partitions)):
        if given != DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {field} was not set to -1.",
            )
    partitions: dict[int, PartitionRegistration] = {}
    replication_factor: int | None = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in partitions:
            raise _wrong_assignment(f"Found multiple manual partition assignments for partition {index}")
        replicas = tuple(map(NodeId, assignment.broker_ids))
        partitions[index] = assigned_partition(cluster, replicas, index=index, replication_factor=replication_factor)
        replication_factor = len(replicas)
    if any(index not in partitions for index in range(len(partitions))):
        raise _wrong_assignment("partitions should be a consecutive 0-based integer sequence")
    return [partitions[index] for index in range(len(partitions))]


def _placed_partitions(
    cluster: ClusterImage, topic: CreatableTopic, settings: TopicSettings, entropy: Entropy
) -> list[PartitionRegistration]:
    if topic.replication_factor < DEFAULT or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < DEFAULT or topic.num_partitions == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    replication_factor = topic.replication_factor
    if replication_factor == DEFAULT:
        replication_factor = settings.replication_factor
    try:
        assignments = place(
            cluster.brokers.values(),
            partition_count=_partition_count(topic, settings),
            replication_factor=replication_factor,
            entropy=entropy,
        )
    except KafkaError as impossible:
        raise KafkaError(
            impossible.code, f"Unable to replicate the partition {replication_factor} time(s): {impossible.message}"
        ) from None
    return new_partitions(cluster, assignments, replication_factor=replication_factor)


def _partition_count(topic: CreatableTopic, settings: TopicSettings) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return settings.num_partitions if topic.num_partitions == DEFAULT else max(topic.num_partitions, 0)


def _directories(cluster: ClusterImage, replicas: tuple[NodeId, ...]) -> tuple[Uuid, ...]:
    return tuple(default_directory(cluster.brokers[replica]) for replica in replicas)


def _refusal(name: str, code: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)


def _wrong_assignment(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
