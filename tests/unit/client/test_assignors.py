"""Assignors: every partition once, members even, and nothing moved without need."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from odradek.client.cluster import TopicPartition
from odradek.client.consumer.assignors import (
    Assignments,
    CooperativeStickyAssignor,
    MemberSubscription,
    RangeAssignor,
    RoundRobinAssignor,
    assignors,
)
from odradek.configdef import ConfigError

ALL = (RangeAssignor(), RoundRobinAssignor(), CooperativeStickyAssignor())


def partitions(topic: str, *indexes: int) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in indexes]


def member(
    name: str, *topics: str, owned: list[TopicPartition] | None = None, generation: int = 1
) -> MemberSubscription:
    return MemberSubscription(name, topics, None, tuple(owned or ()), generation if owned is not None else -1)


def test_range_gives_the_first_members_one_more_in_every_topic() -> None:
    assigned = RangeAssignor().assign({"t": 3, "u": 3}, [member("b", "t", "u"), member("a", "t", "u")])
    assert assigned == {
        "a": partitions("t", 0, 1) + partitions("u", 0, 1),
        "b": partitions("t", 2) + partitions("u", 2),
    }


def test_static_members_come_first_and_keep_their_place() -> None:
    static = MemberSubscription("z-new-after-restart", ("t",), group_instance_id="1")
    assert RangeAssignor().assign({"t": 3}, [member("a", "t"), static])["z-new-after-restart"] == partitions("t", 0, 1)


def test_round_robin_deals_out_over_topics_and_passes_over_the_uninterested() -> None:
    assigned = RoundRobinAssignor().assign({"t": 3, "u": 3}, [member("a", "t", "u"), member("b", "u")])
    assert assigned == {"a": partitions("t", 0, 1, 2) + partitions("u", 1), "b": partitions("u", 0, 2)}


def settle(counts: dict[str, int], members: list[MemberSubscription]) -> tuple[Assignments, int]:
    """Rebalance cooperatively until nobody gives anything up; the number of rounds."""
    owned: Assignments = {each.member_id: list(each.owned) for each in members}
    for rounds in range(1, 10):
        now = [
            MemberSubscription(each.member_id, each.topics, None, tuple(owned[each.member_id]), rounds)
            for each in members
        ]
        assigned = CooperativeStickyAssignor().assign(counts, now)
        for each in members:
            for other in members:
                if other is not each:
                    claimed = set(assigned[each.member_id]) & set(owned[other.member_id])
                    assert not claimed, "given away before it was given up"
        if all(set(owned[name]) <= set(assigned[name]) for name in owned):
            return assigned, rounds
        owned = assigned
    raise AssertionError("the group never settles")


def test_a_new_member_takes_its_share_and_no_more_moves() -> None:
    before = {"a": partitions("t", 0, 2, 4), "b": partitions("t", 1, 3, 5)}
    members = [member("a", "t", owned=before["a"]), member("b", "t", owned=before["b"]), member("c", "t")]
    after, rounds = settle({"t": 6}, members)
    assert rounds == 2
    assert sorted(map(len, after.values())) == [2, 2, 2]
    assert set(after["a"]) < set(before["a"])
    assert set(after["b"]) < set(before["b"])


def test_claims_of_an_older_generation_and_double_claims_do_not_count() -> None:
    members = [
        member("a", "t", owned=partitions("t", 0, 1), generation=5),
        member("b", "t", owned=partitions("t", 0, 2), generation=4),
        member("c", "t", owned=partitions("t", 1), generation=5),
    ]
    assigned = CooperativeStickyAssignor().assign({"t": 3}, members)
    assert assigned == {"a": partitions("t", 0), "b": partitions("t", 2), "c": []}
    members = [member(name, "t", owned=owned) for name, owned in assigned.items()]
    assert settle({"t": 3}, members)[0] == {"a": partitions("t", 0), "b": partitions("t", 2), "c": partitions("t", 1)}


TOPICS = ("t", "u", "v")


@given(
    counts=some.dictionaries(some.sampled_from(TOPICS), some.integers(1, 9), min_size=1),
    wishes=some.lists(some.frozensets(some.sampled_from(TOPICS)), min_size=1, max_size=6),
)
def test_every_wanted_partition_goes_to_exactly_one_who_wants_it(
    counts: dict[str, int], wishes: list[frozenset[str]]
) -> None:
    members = [member(f"m{place}", *sorted(wish)) for place, wish in enumerate(wishes)]
    wanted = [
        TopicPartition(topic, index)
        for topic in sorted(counts)
        for index in range(counts[topic])
        if any(topic in wish for wish in wishes)
    ]
    for assignor in ALL:
        assigned = assignor.assign(counts, members)
        assert sorted(each for given_to in assigned.values() for each in given_to) == wanted
        for each in members:
            assert {partition.topic for partition in assigned[each.member_id]} <= set(each.topics)


@given(counts=some.dictionaries(some.sampled_from(TOPICS), some.integers(1, 9), min_size=1), size=some.integers(1, 6))
def test_members_that_want_the_same_get_the_same_and_keep_it(counts: dict[str, int], size: int) -> None:
    members = [member(f"m{place}", *TOPICS) for place in range(size)]
    assigned, rounds = settle(counts, members)
    assert rounds == 1
    loads = [len(given_to) for given_to in assigned.values()]
    assert max(loads) - min(loads) <= 1
    again = [member(name, *TOPICS, owned=owned) for name, owned in assigned.items()]
    assert settle(counts, again) == (assigned, 1)


def test_names_are_kafkas_own_or_javas() -> None:
    found = assignors(["cooperative-sticky", "org.apache.kafka.clients.consumer.RoundRobinAssignor", "RangeAssignor"])
    assert [assignor.name for assignor in found] == ["cooperative-sticky", "roundrobin", "range"]
    with pytest.raises(ConfigError, match="there is no sticky"):
        assignors(["sticky"])
