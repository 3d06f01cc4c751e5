from __future__ import annotations

from pathlib import Path

import pytest

from odradek.coordinator.group.classic import (
    TRANSITIONS,
    ClassicGroup,
    ClassicMember,
    Event,
    State,
    select_protocol,
    unique_protocols,
)
from odradek.coordinator.group.consumer_protocol import subscribed_topics
from odradek.coordinator.group.records import GroupMetadataValue
from odradek.decisions import Ticket


def member(name: str, *protocols: str, instance_id: str | None = None) -> ClassicMember:
    return ClassicMember(
        name,
        instance_id=instance_id,
        client_id=name,
        client_host="/host",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
        protocols=tuple((each, each.encode()) for each in protocols or ("range",)),
    )


def test_every_state_can_be_left_and_reached() -> None:
    assert set(TRANSITIONS) == set(State)
    reached = {to for events in TRANSITIONS.values() for to in events.values()}
    assert reached == set(State)
    assert TRANSITIONS[State.DEAD] == {Event.DELETED: State.DEAD}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_what_is_not_in_the_table_is_an_error(state: State, event: Event) -> None:
    group = ClassicGroup("g", now_ms=0)
    group.state = state
    if event in TRANSITIONS[state]:
        group.move(event, 7)
        assert (group.state, group.previous_state, group.state_since_ms) == (TRANSITIONS[state][event], state, 7)
    else:
        with pytest.raises(AssertionError, match=event.name):
            group.move(event, 7)


def test_most_votes_win_among_what_all_speak() -> None:
    assert select_protocol([member("a", "x", "y"), member("b", "y", "x"), member("c", "y", "z", "x")]) == "y"
    assert select_protocol([member("a", "x", "y"), member("b", "z", "y")]) == "y"
    assert select_protocol([member("a", "x", "y"), member("b", "y", "x")]) == "x"


def test_of_protocols_with_one_name_the_first_counts() -> None:
    assert unique_protocols([("x", b"1"), ("y", b"2"), ("x", b"3")]) == (("x", b"1"), ("y", b"2"))


def test_counts_follow_members() -> None:
    group = ClassicGroup("g", now_ms=0)
    group.add(member("a", "x", "y"), "consumer", Ticket(1))
    group.add(member("b", "y", instance_id="static"), "consumer", None)
    group.state = State.STABLE
    assert (group.awaiting_join, group.all_joined, group.leader_id) == (1, False, "a")
    assert group.supports("consumer", (("y", b""),))
    assert not group.supports("consumer", (("x", b""),))
    assert not group.supports("connect", (("y", b""),))
    assert group.remove("a") is not None
    assert (group.awaiting_join, group.leader_id, group.static_members) == (0, "b", {"static": "b"})
    assert not group.supports("consumer", (("x", b""),))
    assert group.remove("b") is not None
    assert group.remove("b") is None
    assert (group.leader_id, group.members, group.static_members) == (None, {}, {})


def test_a_group_from_the_log_is_as_it_was_written() -> None:
    group = ClassicGroup("g", now_ms=5)
    group.add(member("a", "range"), "consumer", None)
    group.add(member("b", "range", instance_id="static"), "consumer", None)
    group.generation_id, group.protocol_name = 4, "range"
    record = group.record(group.members.values(), {"a": b"1"}, leader_id="a")
    assert isinstance(record.value, GroupMetadataValue)
    read = ClassicGroup.from_record("g", record.value)
    assert (read.state, read.generation_id, read.leader_id, read.protocol_type) == (State.STABLE, 4, "a", "consumer")
    assert {each.member_id: each.assignment for each in read.members.values()} == {"a": b"1", "b": b""}
    assert read.static_members == {"static": "b"}
    assert read.record(read.members.values(), {"a": b"1"}, leader_id="a") == record


@pytest.mark.parametrize(
    "metadata", [b"", b"\0", b"\0\0\0\0\0\1", b"\0\0\x7f\xff\xff\xff", b"\0\0\0\0\0\1\0\2\xff\xff"]
)
def test_subscriptions_that_cannot_be_read_are_unknown(metadata: bytes) -> None:
    assert subscribed_topics([metadata]) is None


def test_subscriptions_of_every_version_begin_alike() -> None:
    newer = b"\0\3\0\0\0\1\0\1u\xff\xff\xff\xff\0\0\0\0\0\0\0\1\xff\xff"
    assert subscribed_topics([b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff", newer]) == {"t", "u"}


def test_the_diagram_in_the_docs_is_drawn_from_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "internals" / "coordinator.md").read_text()
    _, _, rest = page.partition("stateDiagram-v2\n")
    drawn = [line.strip() for line in rest.partition("```")[0].splitlines()]
    assert drawn == [
        f"{state.name} --> {after.name} : {event.name}"
        for state, events in TRANSITIONS.items()
        for event, after in events.items()
    ]
