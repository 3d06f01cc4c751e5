"""Voters as texts name them, and as the log's records do."""

from __future__ import annotations

import pytest
from tests.unit.metadata.building import uuid

from odradek.ids import ZERO_UUID, NodeId
from odradek.metadata.raft.voters import BadVoters, Membership, ReplicaKey, Voter, parse_initial_controllers

ONE = Voter(NodeId(1), "one", 9093, uuid(1))
TWO = Voter(NodeId(2), "two", 9093, uuid(2))


def test_initial_controllers() -> None:
    text = "0@example.com:8082:JEXY6aqzQY-32P5TStzaFg, 1@[::1]:8083:MvDxzVmcRsaTz33bUuRU6A"
    first, second = parse_initial_controllers(text)
    assert (first.node_id, first.host, first.port) == (0, "example.com", 8082)
    assert (second.node_id, second.host, second.port) == (1, "::1", 8083)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0@example.com:8082",
        "0@example.com:8082:short",
        "x@example.com:8082:JEXY6aqzQY-32P5TStzaFg",
        "0@example.com:port:JEXY6aqzQY-32P5TStzaFg",
        "0@:8082:JEXY6aqzQY-32P5TStzaFg",
        "0@a:1:JEXY6aqzQY-32P5TStzaFg,0@b:2:MvDxzVmcRsaTz33bUuRU6A",
    ],
)
def test_initial_controllers_that_cannot_be(text: str) -> None:
    with pytest.raises(BadVoters, match="--initial-controllers"):
        parse_initial_controllers(text)


def test_the_newest_voters_count_until_they_are_truncated() -> None:
    membership = Membership((ONE,))
    assert membership.voters == (ONE,)
    membership.level_appended(3, 1)
    membership.voters_appended(4, (ONE, TWO))
    membership.voters_appended(9, (TWO,))
    assert (membership.kraft_version, membership.voters, membership.voters_offset) == (1, (TWO,), 9)
    assert membership.as_of(9) == (1, (ONE, TWO))
    assert membership.as_of(3) == (0, ())
    membership.truncated(9)
    assert membership.voters == (ONE, TWO)
    membership.truncated(3)
    assert (membership.kraft_version, membership.voters) == (0, (ONE,))


def test_a_snapshot_stands_for_the_log_before_it() -> None:
    membership = Membership((ONE,))
    membership.loaded(1, (TWO,))
    assert (membership.voters, membership.voters_offset, membership.as_of(0)) == ((TWO,), -1, (1, (TWO,)))


def test_a_voter_is_its_id_and_its_directory() -> None:
    membership = Membership(())
    membership.loaded(1, (ONE,))
    assert membership.is_voter(ONE.key)
    assert membership.is_voter(ReplicaKey(NodeId(1), ZERO_UUID))
    assert not membership.is_voter(ReplicaKey(NodeId(1), uuid(9)))
    assert not membership.is_voter(TWO.key)
