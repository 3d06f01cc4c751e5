"""The server-side assignors: everything is assigned once, to subscribers, evenly, and little of it moves."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.group.assignors import ASSIGNORS
from odradek.coordinator.group.assignors.range import assign_range
from odradek.coordinator.group.assignors.spec import NOTHING, Assignment, GroupSpec, MemberSpec
from odradek.coordinator.group.assignors.uniform import assign_uniform
from odradek.ids import Uuid

T, U, V = (Uuid(bytes(15) + bytes([number])) for number in (1, 2, 3))


def spec(
    subscriptions: Mapping[str, tuple[Uuid, ...]],
    counts: Mapping[Uuid, int],
    before: Mapping[str, Assignment] | None = None,
    instances: Mapping[str, str] | None = None,
) -> GroupSpec:
    return GroupSpec(
        tuple(
            MemberSpec(name, (instances or {}).get(name), topics, (before or {}).get(name, NOTHING))
            for name, topics in subscriptions.items()
        ),
        counts,
    )


def size(assignment: Assignment) -> int:
    return sum(len(partitions) for partitions in assignment.values())


def test_range_is_co_partitioned_and_the_first_get_the_rest() -> None:
    both = (T, U)
    assigned = assign_range(spec({"b": both, "a": both, "c": both}, {T: 7, U: 7}))
    assert assigned["a"] == {T: (0, 1, 2), U: (0, 1, 2)}
    assert assigned["b"] == {T: (3, 4), U: (3, 4)}
    assert assigned["c"] == {T: (5, 6), U: (5, 6)}


def test_range_with_more_members_than_partitions() -> None:
    assigned = assign_range(spec({"a": (T,), "b": (T,), "c": (T,)}, {T: 2}))
    assert assigned == {"a": {T: (0,)}, "b": {T: (1,)}, "c": {}}


def test_range_of_members_that_want_different_topics() -> None:
    assigned = assign_range(spec({"a": (T,), "b": (T, U), "c": (U,)}, {T: 3, U: 2}))
    assert assigned == {"a": {T: (0, 1)}, "b": {T: (2,), U: (0,)}, "c": {U: (1,)}}


def test_range_orders_static_members_by_their_names() -> None:
    assigned = assign_range(spec({"a": (T,), "z": (T,), "y": (T,)}, {T: 3}, instances={"z": "1", "y": "2"}))
    assert assigned == {"z": {T: (0,)}, "y": {T: (1,)}, "a": {T: (2,)}}


def test_uniform_gives_a_newcomer_its_share_and_moves_nothing_else() -> None:
    before = assign_uniform(spec({"a": (T,), "b": (T,)}, {T: 6}))
    assert before == {"a": {T: (0, 1, 2)}, "b": {T: (3, 4, 5)}}
    after = assign_uniform(spec({"a": (T,), "b": (T,), "c": (T,)}, {T: 6}, before))
    assert after == {"a": {T: (0, 1)}, "b": {T: (3, 4)}, "c": {T: (2, 5)}}
    gone = assign_uniform(spec({"b": (T,), "c": (T,)}, {T: 6}, after))
    assert gone == {"b": {T: (0, 3, 4)}, "c": {T: (1, 2, 5)}}


def test_uniform_leaves_the_odd_one_with_whoever_has_it() -> None:
    before: dict[str, Assignment] = {"a": {T: (0,)}, "b": {T: (1, 2)}}
    assert assign_uniform(spec({"a": (T,), "b": (T,)}, {T: 3}, before)) == before


def test_uniform_evens_out_over_topics_that_not_everybody_wants() -> None:
    assigned = assign_uniform(spec({"a": (T, U), "b": (U,)}, {T: 2, U: 4}))
    assert assigned == {"a": {T: (0, 1), U: (2,)}, "b": {U: (0, 1, 3)}}
    moved = assign_uniform(spec({"a": (T,), "b": (T, U)}, {T: 2, U: 1}, {"b": {T: (0, 1), U: (0,)}}))
    assert moved == {"a": {T: (1,)}, "b": {T: (0,), U: (0,)}}


@pytest.mark.parametrize("name", ASSIGNORS)
def test_nothing_to_assign(name: str) -> None:
    assert ASSIGNORS[name](spec({"a": (), "b": ()}, {})) == {"a": {}, "b": {}}


topics = st.sets(st.sampled_from([T, U, V])).map(lambda some: tuple(sorted(some)))
counts = st.fixed_dictionaries({T: st.integers(1, 9), U: st.integers(1, 9), V: st.integers(1, 9)})
members = st.dictionaries(st.sampled_from("abcdefgh"), topics, min_size=1, max_size=8)


def check(assigned: Mapping[str, Assignment], group: GroupSpec) -> None:
    """Every partition of a topic that somebody wants has exactly one owner, and that one wants it."""
    wanted = {topic for member in group.members for topic in member.topics}
    owned = sorted((topic, index) for held in assigned.values() for topic, some in held.items() for index in some)
    assert owned == sorted((topic, index) for topic in wanted for index in range(group.partition_counts[topic]))
    for member in group.members:
        assert set(assigned[member.member_id]) <= set(member.topics)


@given(name=st.sampled_from(sorted(ASSIGNORS)), first=members, second=members, counts=counts)
def test_everything_has_one_owner_who_wants_it(
    name: str, first: dict[str, tuple[Uuid, ...]], second: dict[str, tuple[Uuid, ...]], counts: dict[Uuid, int]
) -> None:
    assign = ASSIGNORS[name]
    group = spec(first, counts)
    before = assign(group)
    check(before, group)
    later = spec(second, counts, before)
    after = assign(later)
    check(after, later)
    assert assign(later) == after


@given(first=members, second=members, counts=counts)
def test_uniform_is_as_even_as_subscriptions_allow(
    first: dict[str, tuple[Uuid, ...]], second: dict[str, tuple[Uuid, ...]], counts: dict[Uuid, int]
) -> None:
    later = spec(second, counts, assign_uniform(spec(first, counts)))
    assigned = assign_uniform(later)
    for owner in later.members:
        for topic in assigned[owner.member_id]:
            for other in later.members:
                if topic in other.topics:
                    assert size(assigned[owner.member_id]) - size(assigned[other.member_id]) <= 1


@given(
    names=st.lists(st.sampled_from("abcdefgh"), min_size=2, max_size=8, unique=True),
    count=st.integers(1, 40),
    leaves=st.booleans(),
)
def test_uniform_moves_no_more_than_it_must(names: list[str], count: int, leaves: bool) -> None:
    """One member comes or goes: only what that one gets or had changes hands, and one more where shares get smaller."""
    few = spec(dict.fromkeys(names[1:], (T,)), {T: count})
    many = dict.fromkeys(names, (T,))
    if leaves:
        before = assign_uniform(spec(many, {T: count}))
        after = assign_uniform(spec(dict.fromkeys(names[1:], (T,)), {T: count}, before))
    else:
        before = assign_uniform(few)
        after = assign_uniform(spec(many, {T: count}, before))
    for name in names[1:]:
        had, has = set(before[name].get(T, ())), set(after[name].get(T, ()))
        assert has >= had if leaves else has <= had


@given(
    st.lists(st.lists(st.integers(-2, 9), unique=True, max_size=9).map(sorted), min_size=1, max_size=4),
    st.integers(1, 6),
    st.booleans(),
)
def test_what_members_are_said_to_have_may_overlap_and_not_exist(
    held: list[list[int]], partitions: int, homogeneous: bool
) -> None:
    before = {str(number): {T: tuple(some)} for number, some in enumerate(held)}
    subscriptions = dict.fromkeys(before, (T,))
    if not homogeneous:
        subscriptions["u"] = (T, U)
    assigned = assign_uniform(spec(subscriptions, {T: partitions, U: 1}, before))
    given_out = [index for each in assigned.values() for index in each.get(T, ())]
    assert sorted(given_out) == list(range(partitions))
