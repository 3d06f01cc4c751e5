"""Plans of where partitions shall be: read, refused, made, and throttled."""

from __future__ import annotations

import json
import random

import pytest

from odradek.apps.cli.reassign_plan import Plan, parse_plan, plan_data, spread, throttled
from odradek.apps.terminal.sentence import Sentence
from odradek.client.admin.reassignment import Reassignment
from odradek.client.cluster import TopicPartition


def topic(*assignments: tuple[int, ...], name: str = "t") -> Plan:
    return {TopicPartition(name, index): replicas for index, replicas in enumerate(assignments)}


def without_racks(*brokers: int) -> dict[int, str | None]:
    return dict.fromkeys(brokers)


def test_a_plan_comes_back_as_it_was_written() -> None:
    plan = topic((1, 2), (2, 3))
    assert parse_plan(json.dumps(plan_data(plan)), "a file") == plan


def test_plans_of_kafkas_tool_are_understood() -> None:
    text = '{"version":1,"partitions":[{"topic":"a-b","partition":7,"replicas":[3,1],"log_dirs":["any","any"]}]}'
    assert parse_plan(text, "a file") == {TopicPartition("a-b", 7): (3, 1)}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is not JSON"),
        ("{", "it is not JSON"),
        ("[]", 'it has no list of "partitions"'),
        ('{"partitions": []}', 'it has no list of "partitions"'),
        ('{"version": 2, "partitions": [1]}', "of version 2; only version 1 is known"),
        ('{"partitions": [1]}', 'each partition has a "topic"'),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', 'each partition has a "topic"'),
        ('{"partitions": [{"topic": "t", "partition": -1, "replicas": [1]}]}', "each partition has"),
        ('{"partitions": [{"topic": "t", "partition": true, "replicas": [1]}]}', "each partition has"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "each partition has"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}', "each partition has"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "a broker twice"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/x"]}]}', "must be any"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            ' {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "names t-0 twice",
        ),
    ],
)
def test_what_is_no_plan_is_refused_in_one_sentence(text: str, says: str) -> None:
    with pytest.raises(Sentence) as refused:
        parse_plan(text, "plan.json")
    assert says in str(refused.value)
    assert str(refused.value).startswith(("plan.json", "log_dirs"))
    assert refused.value.exit_code == 2


def test_what_is_well_spread_stays() -> None:
    plan = topic((1, 2), (2, 3), (3, 1))
    assert spread(plan, without_racks(1, 2, 3)) == plan


def test_a_broker_that_goes_is_replaced_where_it_was() -> None:
    assert spread(topic((1, 2), (2, 1), (1, 2)), without_racks(2, 3)) == topic((3, 2), (2, 3), (3, 2))


def test_a_broker_that_comes_takes_its_share() -> None:
    before = topic(*[(1, 2), (2, 1)] * 6)
    after = spread(before, without_racks(1, 2, 3))
    held = [each for replicas in after.values() for each in replicas]
    assert [held.count(broker) for broker in (1, 2, 3)] == [8, 8, 8]
    moved = sum(each not in before[partition] for partition, replicas in after.items() for each in replicas)
    assert moved == 8
    leads = [replicas[0] for replicas in after.values()]
    assert [leads.count(broker) for broker in (1, 2, 3)] == [4, 4, 4]


def test_more_and_fewer_replicas() -> None:
    assert spread(topic((1,), (2,)), without_racks(1, 2), replication_factor=2) == topic((1, 2), (2, 1))
    assert spread(topic((1, 2), (2, 1)), without_racks(1, 2), replication_factor=1) == topic((1,), (2,))


def test_replicas_go_to_several_racks() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    for replicas in spread(topic(*[(1, 2)] * 8), racks, replication_factor=3).values():
        assert {racks[each] for each in replicas} == {"a", "b"}


@pytest.mark.parametrize("seed", range(50))
def test_any_plan_is_valid_and_even(seed: int) -> None:
    draw = random.Random(seed)
    old = draw.sample(range(10), draw.randrange(1, 8))
    new = draw.sample(range(10), draw.randrange(1, 8))
    factor = draw.randrange(1, min(len(old), len(new)) + 1)
    before = topic(*[tuple(draw.sample(old, factor)) for _ in range(draw.randrange(1, 40))])
    after = spread(before, without_racks(*new))
    assert list(after) == list(before)
    for replicas in after.values():
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= set(new)
    held = [each for replicas in after.values() for each in replicas]
    counts = [held.count(broker) for broker in new]
    assert max(counts) - min(counts) <= 1


def test_who_sends_and_who_is_new_is_throttled() -> None:
    plan = topic((3, 2), (1, 2)) | topic((4,), name="u")
    current = topic((1, 2), (1, 2)) | topic((1,), name="u")
    found = throttled(plan, current, {})
    assert found.leaders == {"t": "0:1,0:2,1:1,1:2", "u": "0:1"}
    assert found.followers == {"t": "0:3", "u": "0:4"}
    assert found.brokers == (1, 2, 3, 4)


def test_what_is_under_way_stays_throttled() -> None:
    moving = {TopicPartition("t", 1): Reassignment((5, 1, 2), adding=(5,), removing=(1,))}
    found = throttled(topic((3, 2)), topic((1, 2), (5, 1, 2)), moving)
    assert (found.leaders, found.followers) == ({"t": "0:1,0:2,1:1,1:2"}, {"t": "0:3,1:5"})
    again = throttled({TopicPartition("t", 1): (6, 2)}, topic((1, 2), (5, 1, 2)), moving)
    assert (again.leaders, again.followers) == ({"t": "1:1,1:2"}, {"t": "1:6"})
