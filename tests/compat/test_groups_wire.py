"""A conversation about classic groups, request by request, in which every answer is what Apache Kafka 4.3 answered.

`groups_wire.txt` holds Kafka's answers; to ask Kafka again:
`COMPAT_SERVER=kafka pytest tests/compat/test_groups_wire.py --rewrite`. Ids and ports are named, lists that Kafka gives
in the order of a hash table are sorted, and sentences in errors are left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import wire
from bench.cells import wait_for_partitions
from tests.compat.brokers import new_server, running
from tests.compat.conversation import Conversation

from odradek.protocol.api import ApiKey
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from odradek.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.list_groups import ListGroupsRequest
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

pytestmark = pytest.mark.compat

RECORDED = Path(__file__).with_name("groups_wire.txt")
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
NOT_YET = (14, 15, 16)


def join(group_id: str = "g", **more: Any) -> JoinGroupRequest:
    fields: dict[str, Any] = {
        "group_id": group_id,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 5_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    }
    return JoinGroupRequest(**fields | more)


def sync(member_id: str, generation_id: int, *assigned: str, **more: Any) -> SyncGroupRequest:
    fields: dict[str, Any] = {"group_id": "g", "protocol_type": "consumer", "protocol_name": "range"}
    assignments = [SyncGroupRequestAssignment(member_id=each, assignment=b"part") for each in assigned]
    return SyncGroupRequest(member_id=member_id, generation_id=generation_id, assignments=assignments, **fields | more)


def beat(member_id: str, generation_id: int, **more: Any) -> HeartbeatRequest:
    return HeartbeatRequest(**{"group_id": "g", "member_id": member_id, "generation_id": generation_id} | more)


def leave(*members: MemberIdentity, group_id: str = "g") -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id=group_id, member_id=members[0].member_id, members=list(members))


def commit(
    group_id: str, generation_id: int = -1, member_id: str = "", *, topics: Any = None, **more: Any
) -> OffsetCommitRequest:
    topics = {"t": [(0, 5, "")]} if topics is None else topics
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=i, committed_offset=offset, committed_metadata=text)
                    for i, offset, text in parts
                ],
            )
            for name, parts in topics.items()
        ],
        **more,
    )


def fetch(*, everything: bool) -> OffsetFetchRequest:
    older = [
        OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1, 9]),
        OffsetFetchRequestTopic(name="nowhere", partition_indexes=[0]),
    ]
    wanted = [
        OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1, 9]),
        OffsetFetchRequestTopics(name="nowhere", partition_indexes=[0]),
    ]
    groups = [
        OffsetFetchRequestGroup(group_id=group_id, topics=None if everything else wanted) for group_id in ("g", "none")
    ]
    return OffsetFetchRequest(group_id="g", topics=None if everything else older, groups=groups)


def delete_offsets(group_id: str, topic: str, *partitions: int) -> OffsetDeleteRequest:
    parts = [OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
    return OffsetDeleteRequest(group_id=group_id, topics=[OffsetDeleteRequestTopic(name=topic, partitions=parts)])


def describe(*groups: str) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=list(groups), include_authorized_operations=True)


def talk(port: int) -> Iterator[str]:
    """Everything, in order; the lines are question and answer in turn."""
    talking = Conversation(port)
    try:
        _wait_for_coordinator(talking)
        talking.lines.clear()
        for version in range(7):
            talking.ask("find", FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"]), version)
        talking.ask("find a share coordinator", FindCoordinatorRequest(key="g", key_type=2), 3)
        _strangers(talking)
        leader = _first_member(talking)
        _offsets(talking, leader)
        _static_members(talking, leader)
        _empty_groups(talking)
    finally:
        talking.close()
    yield from talking.lines


def _wait_for_coordinator(talking: Conversation) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = talking.ask("find", FindCoordinatorRequest(key="g"), 2).error_code
        if found not in NOT_YET and talking.ask("sync", sync("x", 0), 5).error_code not in NOT_YET:
            return
        time.sleep(0.2)


def _strangers(talking: Conversation) -> None:
    talking.ask("too short a session", join(session_timeout_ms=5), 5)
    for version in (5, 9):
        talking.ask("no group", join(""), version)
    talking.ask("an id that was never given out", join(member_id="nope"), 9)
    for version in (3, 9):
        talking.ask("no protocols", join(protocols=[]), version)
    talking.ask("describe what came of it", describe("g"), 5)
    talking.ask("list what came of it", ListGroupsRequest(), 5)
    talking.ask("a stranger's heartbeat", beat("x", 0), 4)
    talking.ask("a stranger syncs", sync("x", 0), 5)
    talking.ask("a sync without protocol", sync("x", 0, protocol_type=None), 5)
    for version in (0, 2, 3, 5):
        talking.ask("a stranger leaves", leave(MemberIdentity(member_id="x")), version)
    talking.ask("a stranger leaves no group", leave(MemberIdentity(member_id="x"), group_id=""), 4)


def _first_member(talking: Conversation) -> JoinGroupResponse:
    pending = talking.ask("join", join(), 9)
    talking.ask("describe while it is expected", describe("g"), 6)
    talking.ask("list while it is expected", ListGroupsRequest(), 5)
    joined: JoinGroupResponse = talking.ask("join with the id", join(member_id=pending.member_id), 9)
    member_id = joined.member_id
    talking.ask("describe before the assignment", describe("g"), 5)
    talking.ask("commit before the assignment", commit("g", 1, member_id), 9)
    talking.ask("sync another generation", sync(member_id, 7), 5)
    talking.ask("sync another protocol", sync(member_id, 1, protocol_name="sticky"), 5)
    talking.ask("sync", sync(member_id, 1, member_id, "ghost"), 5)
    talking.ask("sync again", sync(member_id, 1), 3)
    talking.ask("heartbeat", beat(member_id, 1), 4)
    talking.ask("heartbeat of the generation before", beat(member_id, 0), 4)
    talking.ask("heartbeat with an instance id", beat(member_id, 1, group_instance_id="i"), 4)
    talking.ask("another protocol", join(protocols=[JoinGroupRequestProtocol(name="sticky", metadata=b"")]), 9)
    talking.ask("another kind", join(protocol_type="connect"), 9)
    for version in range(7):
        talking.ask("describe", describe("g", "nobody"), version)
    return joined


def _offsets(talking: Conversation, member: JoinGroupResponse) -> None:
    member_id = member.member_id
    mixed = {"t": [(0, 5, "m"), (7, 1, "")], "nowhere": [(0, 1, "")], "u": [(0, 2, "x" * 5_000)]}
    talking.ask("commit what is there and what is not", commit("g", 1, member_id, topics=mixed), 9)
    talking.ask("commit the old way", commit("g", 1, member_id), 2)
    talking.ask("commit nothing", commit("g", 1, member_id, topics={}), 9)
    talking.ask("a stranger commits nothing", commit("g", 1, "x", topics={}), 9)
    talking.ask("commit no partitions", commit("g", 1, member_id, topics={"t": []}), 9)
    talking.ask("commit to a busy group as an administrator", commit("g"), 9)
    for version in (8, 9):
        talking.ask("commit to a group that is not there", commit("h", 3, "x"), version)
    talking.ask("commit to no group", commit(""), 9)
    for version in range(1, 10):
        talking.ask("fetch offsets", fetch(everything=False), version)
        if version >= 2:
            talking.ask("fetch all offsets", fetch(everything=True), version)
    talking.ask("delete offsets in use", delete_offsets("g", "t", 0, 1), 0)
    talking.ask("delete offsets of nothing", delete_offsets("g", "nowhere", 0), 0)
    talking.ask("delete offsets not in use", delete_offsets("g", "u", 0, 5), 0)
    talking.ask("delete offsets of a group that is not there", delete_offsets("none", "u", 0), 0)
    talking.ask("delete offsets of no group", delete_offsets("", "u", 0), 0)
    talking.ask("delete groups", DeleteGroupsRequest(groups_names=["g", "none", ""]), 2)
    for version in range(6):
        states = ["STABLE", "Empty"] if version >= 4 else []
        types = ["classic"] if version >= 5 else []
        talking.ask("list", ListGroupsRequest(states_filter=states, types_filter=types), version)
    talking.ask("list a state that is none", ListGroupsRequest(states_filter=["Nonsense"]), 5)
    talking.ask("list a type that is none", ListGroupsRequest(types_filter=["Nonsense"]), 5)


def _static_members(talking: Conversation, leader: JoinGroupResponse) -> None:
    member_id = leader.member_id
    talking.send(join(group_instance_id="i"), 9, on="two")
    deadline = time.monotonic() + 10
    while talking.ask("heartbeat", beat(member_id, 1), 4).error_code == 0 and time.monotonic() < deadline:
        del talking.lines[-2:]
    talking.ask("sync in a rebalance", sync(member_id, 1), 5)
    talking.ask("commit in a rebalance", commit("g", 1, member_id), 9)
    talking.ask("join again", join(member_id=member_id), 9)
    static = talking.receive("join as a static member", ApiKey.JOIN_GROUP, 9, on="two").member_id
    talking.ask("sync", sync(member_id, 2, member_id, static), 5)
    talking.ask("sync as a static member", sync(static, 2, group_instance_id="i"), 5, on="two")
    talking.ask("a static member comes back", join(group_instance_id="i"), 9, on="three")
    old = {"member_id": static, "group_instance_id": "i"}
    talking.ask("its former self", beat(static, 2, group_instance_id="i"), 4, on="two")
    talking.ask("its former self without instance id", beat(static, 2), 4, on="two")
    for version in (5, 9):
        talking.ask("its former self joins", join(**old), version, on="two")
    talking.ask("it comes back as an older client", join(group_instance_id="i"), 5, on="three")
    gone = MemberIdentity(member_id="", group_instance_id="i")
    request = leave(gone, gone, MemberIdentity(member_id=member_id), MemberIdentity(member_id="x"))
    talking.ask("all leave", request, 5)


def _empty_groups(talking: Conversation) -> None:
    talking.ask("describe an empty group", describe("g"), 6)
    talking.ask("commit to an empty group", commit("g"), 9)
    talking.ask("commit with an id", commit("g", -1, "x"), 9)
    talking.ask("commit with a generation", commit("g", 4, "x"), 9)
    talking.ask("delete its offsets", delete_offsets("g", "t", 0, 1), 0)
    talking.ask("commit alone", commit("alone"), 9)
    talking.ask("commit for a while", commit("alone", retention_time_ms=100_000, topics={"t": [(1, 4, "")]}), 4)
    talking.ask("describe a group of offsets", describe("alone"), 6)
    talking.ask("heartbeat there", beat("x", 0, group_id="alone"), 4)
    talking.ask("sync there", sync("x", 0, group_id="alone"), 5)
    talking.ask("join there with an id", join("alone", member_id="x"), 9)
    talking.ask("leave there", leave(MemberIdentity(member_id="x"), group_id="alone"), 4)
    talking.ask("list", ListGroupsRequest(), 5)
    talking.ask("delete", DeleteGroupsRequest(groups_names=["g", "alone"]), 2)
    talking.ask("list what is left", ListGroupsRequest(), 5)


def test_every_answer_is_kafkas(request: pytest.FixtureRequest) -> None:
    with running(new_server(properties=PROPERTIES)) as server:
        with wire.Connection(server.port) as connection:
            for name, partitions in (("t", 3), ("u", 1)):
                assert wire.create_topic(connection, name, partitions, {}) == 0
                wait_for_partitions(connection, name, partitions)
        said = list(talk(server.port))
    if request.config.getoption("--rewrite"):
        RECORDED.write_text("\n".join(said) + "\n")
    assert said == RECORDED.read_text().splitlines()
