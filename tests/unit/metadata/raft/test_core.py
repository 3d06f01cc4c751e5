"""A quorum of one elects itself, in an epoch nobody used."""

from __future__ import annotations

import dataclasses

import pytest
from tests.unit.metadata.building import uuid

from odradek.ids import LeaderEpoch, NodeId
from odradek.metadata.raft.control_records import recorded_voters
from odradek.metadata.raft.core import LoggedQuorum, Ready, elect_itself
from odradek.metadata.raft.quorum_state import QuorumState
from odradek.metadata.raft.voters import BadVoters, Voter, parse_initial_controllers
from odradek.protocol.messages.control_records import KRaftVersionRecord, VotersRecord

ME = Voter(NodeId(1), "localhost", 9093, uuid(200))
STATIC = LoggedQuorum(kraft_version=0, voters=())
DYNAMIC = LoggedQuorum(kraft_version=1, voters=(ME,))


def elect(logged: LoggedQuorum, *, empty: bool = False, seen: int = 0, last_epoch: int = 0, me: Voter = ME) -> Ready:
    return elect_itself(
        me,
        listener_name="CONTROLLER",
        state=QuorumState(leader_epoch=LeaderEpoch(seen)),
        last_epoch=LeaderEpoch(last_epoch),
        logged=logged,
        log_is_empty=empty,
    )


def kinds(ready: Ready) -> list[str]:
    return [type(message).__name__ for message in ready.control_records]


def test_a_static_quorum_only_tells_the_leader() -> None:
    ready = elect(STATIC, empty=True)
    assert kinds(ready) == ["LeaderChangeMessage"]
    assert ready.state == QuorumState(leader_id=NodeId(1), leader_epoch=LeaderEpoch(1))


@pytest.mark.parametrize(("seen", "last_epoch", "epoch"), [(0, -1, 1), (4, 3, 5), (3, 9, 10)])
def test_the_epoch_is_one_that_neither_the_file_nor_the_log_has_seen(seen: int, last_epoch: int, epoch: int) -> None:
    assert elect(STATIC, seen=seen, last_epoch=last_epoch).state.leader_epoch == epoch


def test_the_first_leader_of_a_dynamic_quorum_records_its_voters() -> None:
    ready = elect(DYNAMIC, empty=True)
    assert kinds(ready) == ["LeaderChangeMessage", "KRaftVersionRecord", "VotersRecord"]
    _, version, voters = ready.control_records
    assert isinstance(version, KRaftVersionRecord)
    assert version.kraft_version == 1
    assert isinstance(voters, VotersRecord)
    assert recorded_voters(voters) == (ME,)


def test_later_leaders_record_them_only_when_their_address_changed() -> None:
    assert kinds(elect(DYNAMIC)) == ["LeaderChangeMessage"]
    moved = dataclasses.replace(ME, port=9999)
    assert kinds(elect(DYNAMIC, me=moved)) == ["LeaderChangeMessage", "VotersRecord"]


def test_other_voters_are_refused_in_one_sentence() -> None:
    two = LoggedQuorum(kraft_version=1, voters=(ME, Voter(NodeId(2), "localhost", 9094, uuid(201))))
    with pytest.raises(BadVoters, match=r"this node alone \(1\) in this version, but its voters are: 1, 2\."):
        elect(two)
    with pytest.raises(BadVoters, match="its voters are: nobody"):
        elect(LoggedQuorum(kraft_version=1, voters=()))
    with pytest.raises(BadVoters, match="formatted elsewhere"):
        elect(DYNAMIC, me=dataclasses.replace(ME, directory_id=uuid(999)))


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
