"""Creating topics: Kafka's checks, in Kafka's order and words."""

from __future__ import annotations

import pytest
from tests.unit.metadata.building import SETTINGS, broker, cluster, entropy, replayed, uuid

from odradek.metadata.controller.topics import create_topics
from odradek.metadata.image import Image
from odradek.metadata.image.topics import UNASSIGNED_DIRECTORY
from odradek.metadata.records import ConfigRecord, PartitionRecord, TopicRecord
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)


def wanted(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    *,
    assignments: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=-1 if assignments else partitions,
        replication_factor=-1 if assignments else replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in (assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key, value=text) for key, text in (configs or {}).items()],
    )


def create(
    image: Image, *topics: CreatableTopic, validate_only: bool = False
) -> tuple[tuple[Message, ...], list[CreatableTopicResult]]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    decision = create_topics(image, request, settings=SETTINGS, entropy=entropy())
    ((_, response),) = decision.answers
    return decision.records, response.topics


def refused(image: Image, *topics: CreatableTopic) -> tuple[ErrorCode, str | None]:
    records, (result, *_) = create(image, *topics)
    assert records == ()
    return ErrorCode(result.error_code), result.error_message


def with_topic(name: str, image: Image | None = None) -> Image:
    image = image or cluster()
    records, _ = create(image, wanted(name))
    return replayed(image, records)


def test_a_topic_its_configuration_and_its_partitions_in_one_batch() -> None:
    records, (result,) = create(cluster(), wanted("t", 2, configs={"retention.ms": "5"}))
    assert [type(record) for record in records] == [TopicRecord, ConfigRecord, PartitionRecord, PartitionRecord]
    image = replayed(cluster(), records)
    topic = image.topics.by_name["t"]
    assert topic.topic_id == result.topic_id
    for partition in topic.partitions:
        assert (partition.leader, partition.replicas, partition.isr) == (1, (1,), (1,))
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        assert partition.directories == (uuid(1001),)
    assert (result.num_partitions, result.replication_factor) == (2, 1)
    assert [(each.name, each.value) for each in result.configs or ()] == [("retention.ms", "5")]


def test_a_broker_with_several_directories_chooses_itself() -> None:
    records, _ = create(cluster(broker(1, log_dirs=2)), wanted("t"))
    assert replayed(cluster(), records).topics.by_name["t"].partitions[0].directories == (UNASSIGNED_DIRECTORY,)


def test_minus_one_takes_the_defaults() -> None:
    _, (result,) = create(cluster(), wanted("t", -1, -1))
    assert (result.num_partitions, result.replication_factor) == (3, 1)


def test_validate_only_answers_and_writes_nothing() -> None:
    records, (result,) = create(cluster(), wanted("t", 5), validate_only=True)
    assert records == ()
    assert (result.error_code, result.num_partitions) == (0, 5)


def test_topics_of_one_request_stand_alone() -> None:
    records, results = create(cluster(), wanted("good"), wanted("bad", 0), wanted("also-good"))
    assert [result.error_code for result in results] == [0, ErrorCode.INVALID_PARTITIONS, 0]
    assert list(replayed(cluster(), records).topics.by_name) == ["good", "also-good"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "x" * 250])
def test_names_that_may_not_be(name: str) -> None:
    assert refused(cluster(), wanted(name))[0] is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_name_that_exists() -> None:
    assert refused(with_topic("t"), wanted("t")) == (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' already exists.")
    # Being there counts before colliding with itself.
    assert refused(with_topic("a.b"), wanted("a.b"))[0] is ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_name_that_would_share_its_metrics() -> None:
    assert refused(with_topic("a.b"), wanted("a_b")) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic 'a_b' collides with existing topic: a.b",
    )
    assert create(with_topic("a.b"), wanted("a-b"))[1][0].error_code == 0


@pytest.mark.parametrize("partitions", [0, -2])
def test_partition_counts_that_may_not_be(partitions: int) -> None:
    assert refused(cluster(), wanted("t", partitions)) == (
        ErrorCode.INVALID_PARTITIONS,
        "Number of partitions was set to an invalid non-positive value.",
    )


@pytest.mark.parametrize("replicas", [0, -2])
def test_replication_factors_that_may_not_be(replicas: int) -> None:
    assert refused(cluster(), wanted("t", 1, replicas)) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Replication factor must be larger than 0, or -1 to use the default value.",
    )


def test_more_replicas_than_brokers() -> None:
    assert refused(cluster(), wanted("t", 1, 2)) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because "
        "only 1 broker(s) are registered or some brokers have all their log directories cordoned.",
    )


def test_nobody_alive() -> None:
    assert refused(cluster(broker(1, fenced=True)), wanted("t")) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Unable to replicate the partition 1 time(s): All brokers are currently fenced.",
    )


def test_too_much_for_one_batch() -> None:
    assert refused(cluster(), wanted("a", 6000), wanted("b", 6000)) == (
        ErrorCode.POLICY_VIOLATION,
        "Excessively large number of partitions per request.",
    )
    assert create(cluster(), wanted("a", 10_000))[1][0].error_code == 0


def test_configurations_that_may_not_be() -> None:
    assert refused(cluster(), wanted("t", configs={"a": None, "b": "1", "c": None})) == (
        ErrorCode.INVALID_CONFIG,
        "Null value not supported for topic configs: a,c",
    )
    assert refused(cluster(), wanted("t", configs={"no.such.key": "1"})) == (
        ErrorCode.INVALID_CONFIG,
        "Unknown topic config name: no.such.key",
    )


def test_duplicates_and_the_metadata_topic() -> None:
    records, results = create(cluster(), wanted("twice"), wanted("twice"), wanted("once"), wanted("__cluster_metadata"))
    assert [(each.name, each.error_code, each.error_message) for each in results] == [
        ("once", 0, None),
        ("twice", ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        (
            "__cluster_metadata",
            ErrorCode.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
    ]
    assert list(replayed(cluster(), records).topics.by_name) == ["once"]


def test_manual_assignments() -> None:
    image = cluster(broker(1), broker(2, fenced=True), broker(3))
    records, (result,) = create(image, wanted("t", assignments={1: [3, 1], 0: [2, 3]}))
    assert (result.num_partitions, result.replication_factor) == (2, 2)
    first, second = replayed(image, records).topics.by_name["t"].partitions
    assert (first.replicas, first.isr, first.leader) == ((2, 3), (3,), 3)
    assert (second.replicas, second.isr, second.leader) == ((3, 1), (3, 1), 3)


@pytest.mark.parametrize(
    ("assignments", "why"),
    [
        ({0: []}, "The manual partition assignment includes an empty replica list."),
        ({0: [9]}, "The manual partition assignment includes broker 9, but no such broker is registered."),
        ({0: [1, 1]}, "The manual partition assignment includes the broker 1 more than once."),
        (
            {0: [1], 1: [1, 3]},
            "The manual partition assignment includes a partition with 2 replica(s), but this is not consistent with "
            "previous partitions, which have 1 replica(s).",
        ),
        ({0: [1], 2: [1]}, "partitions should be a consecutive 0-based integer sequence"),
        (
            {0: [2]},
            "All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled "
            "shutdown.",
        ),
    ],
)
def test_manual_assignments_that_may_not_be(assignments: dict[int, list[int]], why: str) -> None:
    image = cluster(broker(1), broker(2, fenced=True), broker(3))
    assert refused(image, wanted("t", assignments=assignments)) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)


def test_an_assignment_beside_a_count() -> None:
    topic = wanted("t", assignments={0: [1]})
    topic.replication_factor = 1
    assert refused(cluster(), topic) == (
        ErrorCode.INVALID_REQUEST,
        "A manual partition assignment was specified, but replication factor was not set to -1.",
    )
    topic = wanted("t", assignments={0: [1]})
    topic.num_partitions = 1
    assert refused(cluster(), topic) == (
        ErrorCode.INVALID_REQUEST,
        "A manual partition assignment was specified, but numPartitions was not set to -1.",
    )
    topic = wanted("t", assignments={0: [1]})
    topic.assignments = topic.assignments * 2
    assert refused(cluster(), topic) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "Found multiple manual partition assignments for partition 0",
    )


def test_the_same_draw_gives_the_same_topic() -> None:
    assert create(cluster(), wanted("t", 5))[0] == create(cluster(), wanted("t", 5))[0]
