"""Partitions move to other brokers: begun, listed, cancelled."""

from __future__ import annotations

import pytest
from tests.unit.metadata.building import (
    broker,
    cluster,
    led_by,
    replayed,
    rules,
    the_partition,
    with_config,
    with_elr,
    with_topic,
)

from odradek.ids import NO_NODE, NodeId
from odradek.metadata.controller.brokers import fence
from odradek.metadata.controller.reassignment import alter_partition_reassignments, list_partition_reassignments
from odradek.metadata.image import Image
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

FOUR = cluster(*(broker(number) for number in range(1, 5)))
IMAGE = with_topic(FOUR, led_by(1, [1, 2]), led_by(2, [2, 1]))


def move(
    image: Image, replicas: list[int] | None, *, topic: str = "t", index: int = 0, grow: bool = True
) -> tuple[ErrorCode, Image]:
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=grow,
        topics=[
            ReassignableTopic(name=topic, partitions=[ReassignablePartition(partition_index=index, replicas=replicas)])
        ],
    )
    decision = alter_partition_reassignments(image, request, rules=rules(image))
    ((_, response),) = decision.answers
    return ErrorCode(response.responses[0].partitions[0].error_code), replayed(image, decision.records)


def listed(image: Image, topics: list[ListPartitionReassignmentsTopics] | None = None) -> list[tuple[str, int]]:
    response = list_partition_reassignments(image, ListPartitionReassignmentsRequest(topics=topics))
    return [(topic.name, partition.partition_index) for topic in response.topics for partition in topic.partitions]


def test_new_replicas_come_beside_the_old_ones() -> None:
    code, after = move(IMAGE, [3, 4])
    partition = the_partition(after)
    assert code is ErrorCode.NONE
    assert (partition.replicas, partition.isr, partition.leader) == ((3, 4, 1, 2), (1, 2), 1)
    assert (partition.adding_replicas, partition.removing_replicas) == ((3, 4), (1, 2))
    assert partition.leader_epoch == 4
    assert listed(after) == [("t", 0)]
    asked = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 1, 7]) for name in ("t", "u")]
    assert listed(after, asked) == [("t", 0)]
    assert listed(IMAGE) == []


def test_another_order_needs_nothing_else() -> None:
    code, after = move(IMAGE, [2, 1])
    partition = the_partition(after)
    assert code is ErrorCode.NONE
    assert (partition.replicas, partition.leader, partition.adding_replicas) == ((2, 1), 1, ())


def test_fewer_replicas_are_had_at_once() -> None:
    _, after = move(IMAGE, [2])
    partition = the_partition(after)
    assert (partition.replicas, partition.isr, partition.leader, partition.leader_epoch) == ((2,), (2,), 2, 5)


def test_a_replica_that_was_removed_is_not_eligible_when_it_comes_back() -> None:
    """Its log is deleted with its replica: it would lead with nothing, and the last in sync would cut its own log."""
    image = with_elr(with_config(with_topic(FOUR, led_by(1, [1, 2, 3])), min_insync_replicas="2"))
    _, alone = move(image, [1])
    assert (the_partition(alone).replicas, the_partition(alone).isr, the_partition(alone).elr) == ((1,), (1,), ())
    _, without_leader = move(replayed(alone, fence(alone, NodeId(1), rules(alone))), [1, 2])
    assert (the_partition(without_leader).leader, the_partition(without_leader).elr) == (NO_NODE, (1,))


def test_who_an_older_version_left_eligible_without_a_replica_does_not_lead() -> None:
    dead = cluster(broker(1, fenced=True), broker(2), broker(3))
    partition = led_by(-1, [1], [], eligible_leader_replicas=[1, 2, 3], last_known_elr=[1])
    image = with_elr(with_config(with_topic(dead, partition), min_insync_replicas="2"))
    _, after = move(image, [1, 2])
    assert (the_partition(after).leader, the_partition(after).elr) == (NO_NODE, (1,))


def test_a_move_is_cancelled() -> None:
    _, moving = move(IMAGE, [1, 3])
    code, after = move(moving, None)
    partition = the_partition(after)
    assert code is ErrorCode.NONE
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 2), (1, 2), 1)
    assert (partition.adding_replicas, partition.removing_replicas) == ((), ())
    assert partition.directories == the_partition(IMAGE).directories


@pytest.mark.parametrize(
    ("target", "replicas", "adding", "removing"),
    [
        ([1, 2], (1, 2), (), ()),
        ([1, 2, 3], (1, 2, 3), (3,), ()),
        ([1, 4], (1, 4, 2, 3), (4,), (2, 3)),
        ([3, 4], (3, 4, 1, 2), (3, 4), (1, 2)),
        ([1, 3], (1, 3, 2), (3,), (2,)),
        ([1], (1,), (), ()),
    ],
    ids=["back", "both", "elsewhere", "further", "the same", "fewer"],
)
def test_a_move_is_redirected_though_its_target_is_dead(
    target: list[int], replicas: tuple[int, ...], adding: tuple[int, ...], removing: tuple[int, ...]
) -> None:
    dead = cluster(broker(1), broker(2), broker(3, fenced=True), broker(4))
    _, moving = move(with_topic(dead, led_by(1, [1, 2])), [1, 3])
    code, after = move(moving, target)
    partition = the_partition(after)
    assert code is ErrorCode.NONE
    assert (partition.replicas, partition.adding_replicas, partition.removing_replicas) == (replicas, adding, removing)


def test_what_only_new_replicas_have_is_not_thrown_away_unasked() -> None:
    image = with_topic(FOUR, led_by(3, [3, 1, 2], [3], adding_replicas=[3], removing_replicas=[2]))
    code, _ = move(image, None)
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    code, after = move(with_config(image, unclean_leader_election_enable="true"), None)
    assert code is ErrorCode.NONE
    assert (the_partition(after).replicas, the_partition(after).isr, the_partition(after).leader) == ((1, 2), (1,), 1)


@pytest.mark.parametrize(
    ("code", "replicas", "more"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [1], {"topic": "u"}),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [1], {"index": 2}),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [1], {"index": -1}),
        (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None, {}),
        (ErrorCode.INVALID_REPLICA_ASSIGNMENT, [], {}),
        (ErrorCode.INVALID_REPLICA_ASSIGNMENT, [1, 1], {}),
        (ErrorCode.INVALID_REPLICA_ASSIGNMENT, [1, 9], {}),
        (ErrorCode.INVALID_REPLICATION_FACTOR, [1, 2, 3], {"grow": False}),
    ],
)
def test_what_is_refused(code: ErrorCode, replicas: list[int] | None, more: dict[str, object]) -> None:
    refused, after = move(IMAGE, replicas, **more)  # type: ignore[arg-type]
    assert refused is code
    assert after.topics == IMAGE.topics


def test_the_factor_of_a_partition_that_moves_is_the_one_it_will_have() -> None:
    _, moving = move(IMAGE, [3, 4])
    assert move(moving, [1, 4], grow=False)[0] is ErrorCode.NONE
    assert move(moving, [1], grow=False)[0] is ErrorCode.INVALID_REPLICATION_FACTOR
