"""Where records go: keys where the Java client puts them, records without keys evenly."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from odradek.client.cluster import PartitionInfo, TopicInfo
from odradek.client.producer.partitioners import RoundRobin, Sticky, murmur2, partition_of_key
from odradek.ids import ZERO_UUID
from odradek.sim.entropy import SimulatedEntropy


@pytest.mark.parametrize(
    ("data", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
)
def test_murmur2_is_the_java_clients(data: bytes, signed: int) -> None:
    """The vectors of Kafka's own test of it."""
    assert murmur2(data) == signed & 0xFFFFFFFF


def test_a_key_always_goes_to_the_same_partition() -> None:
    assert partition_of_key(b"foobar", 3) == (-790332482 & 0x7FFFFFFF) % 3
    assert {partition_of_key(b"%d" % key, 5) for key in range(1000)} == {0, 1, 2, 3, 4}


def topic(name: str, *leaders: int) -> TopicInfo:
    partitions = tuple(PartitionInfo(index, leader, 0, (1,), (1,)) for index, leader in enumerate(leaders))
    return TopicInfo(name, ZERO_UUID, False, partitions)


def test_sticky_stays_for_a_batch_and_spreads_evenly() -> None:
    sticky = Sticky(SimulatedEntropy(random.Random(1)), batch_size=1000)
    chosen = [sticky.choose(topic("t", 1, 1, 1), 100) for _ in range(30_000)]
    for start in range(0, len(chosen), 10):
        assert len(set(chosen[start : start + 10])) == 1, "moved before the batch was full"
    assert all(chosen[at] != chosen[at - 1] for at in range(10, len(chosen), 10)), "stayed after it was full"
    assert max(Counter(chosen).values()) < 1.1 * min(Counter(chosen).values())


def test_sticky_leaves_a_partition_that_its_topic_made_anew_does_not_have() -> None:
    sticky = Sticky(SimulatedEntropy(random.Random(1)), batch_size=1000)
    assert sticky.choose(topic("t", -1, -1, 1), 1) == 2
    assert sticky.choose(topic("t", 1), 1) == 0


def test_sticky_leaves_a_partition_that_has_lost_its_leader() -> None:
    sticky = Sticky(SimulatedEntropy(random.Random(1)), batch_size=1000)
    first = sticky.choose(topic("t", 1, 1, 1), 1)
    leaders = [-1 if index == first else 1 for index in range(3)]
    assert sticky.choose(topic("t", *leaders), 1) != first
    assert Sticky(SimulatedEntropy(random.Random(1)), 1000).choose(topic("t", -1, -1, 1), 2000) == 2
    assert Sticky(SimulatedEntropy(random.Random(1)), 1000).choose(topic("t", -1, -1), 2000) in (0, 1)


def test_round_robin_takes_turns_by_topic() -> None:
    turns = RoundRobin()
    assert [turns.choose(topic("t", 1, 1, 1)) for _ in range(4)] == [0, 1, 2, 0]
    assert turns.choose(topic("u", 1, 1, 1)) == 0
    assert [turns.choose(topic("v", 1, -1, 1)) for _ in range(3)] == [0, 2, 0]
