"""Elections on demand."""

from __future__ import annotations

import pytest
from tests.unit.metadata.building import broker, cluster, led_by, replayed, rules, with_topic

from odradek.metadata.controller.elect_leaders import elect_leaders
from odradek.metadata.image import Image
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

PREFERRED, UNCLEAN = 0, 1
CLUSTER = cluster(broker(1), broker(2), broker(3, fenced=True))
IMAGE = with_topic(
    CLUSTER,
    led_by(1, [1, 2]),
    led_by(2, [1, 2]),
    led_by(2, [1, 2], [2]),
    led_by(-1, [3, 1], [3]),
    led_by(-1, [3], [3]),
)


def elect(kind: int, topics: list[TopicPartitions] | None) -> tuple[dict[tuple[str, int], ErrorCode], Image]:
    request = ElectLeadersRequest(election_type=kind, topic_partitions=topics)
    decision = elect_leaders(IMAGE, request, rules=rules(IMAGE))
    ((_, response),) = decision.answers
    told = {
        (topic.topic, result.partition_id): ErrorCode(result.error_code)
        for topic in response.replica_election_results
        for result in topic.partition_result
    }
    return told, replayed(IMAGE, decision.records)


def leaders(image: Image) -> list[int]:
    return [partition.leader for partition in image.topics.by_name["t"].partitions]


def test_preferred_leaders() -> None:
    asked = [TopicPartitions(topic="t", partitions=[0, 1, 2, 3, 9]), TopicPartitions(topic="u", partitions=[0])]
    told, after = elect(PREFERRED, asked)
    assert told == {
        ("t", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 1): ErrorCode.NONE,
        ("t", 2): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ("t", 3): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert leaders(after) == [1, 1, 2, -1, -1]


def test_unclean_leaders() -> None:
    told, after = elect(UNCLEAN, [TopicPartitions(topic="t", partitions=[0, 3, 4])])
    assert told == {
        ("t", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 3): ErrorCode.NONE,
        ("t", 4): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    }
    assert leaders(after) == [1, 2, 2, 1, -1]


def test_an_election_for_all_tells_only_of_those_that_need_one() -> None:
    told, _ = elect(PREFERRED, None)
    assert sorted(told) == [("t", 1), ("t", 2), ("t", 3), ("t", 4)]


def test_an_election_of_an_unknown_kind() -> None:
    with pytest.raises(KafkaError) as refused:
        elect(7, None)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
