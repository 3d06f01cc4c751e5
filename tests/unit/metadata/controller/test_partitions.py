from __future__ import annotations

import pytest
from tests.unit.metadata.building import broker, cluster, entropy, replayed, uuid

from odradek.metadata.controller.partitions import create_partitions
from odradek.metadata.image import Image
from odradek.metadata.image.topics import new_partition, partition_record
from odradek.metadata.records import TopicRecord
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def image_of(*brokers_fenced: bool) -> Image:
    image = cluster(*(broker(number, fenced=fenced) for number, fenced in enumerate(brokers_fenced or (False,), 1)))
    first = image.cluster.brokers[next(iter(image.cluster.brokers))]
    partition = new_partition((first.broker_id,), directories=first.log_dirs, isr=(first.broker_id,))
    head = TopicRecord(name="t", topic_id=uuid(201))
    return replayed(image, [head, *(partition_record(uuid(201), index, partition) for index in range(2))])


def grow(
    image: Image, count: int, assignments: list[list[int]] | None = None, *, name: str = "t", times: int = 1
) -> tuple[CreatePartitionsTopicResult, int]:
    given = None if assignments is None else [CreatePartitionsAssignment(broker_ids=each) for each in assignments]
    topics = [CreatePartitionsTopic(name=name, count=count, assignments=given)] * times
    request = CreatePartitionsRequest(topics=topics, timeout_ms=0, validate_only=False)
    decision = create_partitions(image, request, entropy=entropy())
    ((_, response),) = decision.answers
    (result,) = response.results
    return result, len(replayed(image, decision.records).topics.by_name["t"].partitions)


def test_a_topic_grows() -> None:
    result, count = grow(image_of(), 5)
    assert (result.error_code, count) == (0, 5)


def test_new_partitions_by_hand() -> None:
    result, count = grow(image_of(False, False), 4, [[2], [1]])
    assert (result.error_code, count) == (0, 4)


def test_validate_only_writes_nothing() -> None:
    topic = CreatePartitionsTopic(name="t", count=3, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=0, validate_only=True)
    decision = create_partitions(image_of(), request, entropy=entropy())
    assert decision.records == ()
    assert decision.answers[0][1].results[0].error_code == 0


@pytest.mark.parametrize(
    ("count", "assignments", "code", "why"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (
            1,
            None,
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            4,
            [[1]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            3,
            [[9]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (20_000, None, ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."),
    ],
)
def test_growth_that_may_not_be(count: int, assignments: list[list[int]] | None, code: ErrorCode, why: str) -> None:
    result, left = grow(image_of(), count, assignments)
    assert (result.error_code, result.error_message, left) == (code, why, 2)


def test_unknown_repeated_and_nobody_alive() -> None:
    assert grow(image_of(), 3, name="nope")[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grow(image_of(), 3, times=2)[0].error_code == ErrorCode.INVALID_REQUEST
    assert grow(image_of(True), 3)[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
