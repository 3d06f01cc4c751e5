"""Members that lie, strangers, storms and crowds: all are answered as Apache Kafka does, and harm nobody else."""

from __future__ import annotations

import itertools
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypedDict, TypeVar

import pytest
from bench import wire
from bench.group_load import find_coordinator
from bench.measure import cpu_seconds, memory_mib
from bench.servers import Server
from tests.compat.brokers import IS_KAFKA, new_server, running

from odradek.protocol.codec import Message, decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from odradek.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

MessageT = TypeVar("MessageT", bound=Message)

NO_IDS_FIRST = 3
"""The last version of JoinGroup that makes a member of whoever asks, without telling it an id first."""
JOIN, SYNC, BEAT, LEAVE, COMMIT, FETCH = 5, 3, 3, 3, 7, 5
"""Versions from before compact encoding, which need no more than `wire` knows."""

MEGABYTE = 1 << 20
CROWD = 10_000
PIPELINED = 50
"""Requests sent on one connection before the first is answered."""
NEVER_ISSUED = "consumer-5a2b1c84-0d8f-4b07-9f6e-0a1b2c3d4e5f"

_numbers = itertools.count()


class Who(TypedDict):
    """As whom a member speaks."""

    generation_id: int
    member_id: str


def ask(connection: wire.Connection, request: Message, response: type[MessageT], version: int) -> MessageT:
    return heard(connection.request(request.api_key, version, encode(request, version)), response, version)


def heard(answer: wire.Reader, response: type[MessageT], version: int) -> MessageT:
    return decode(response, version, answer.data[answer.position :])


def join_request(group: str, *, member_id: str = "", metadata: bytes = b"") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=120_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


def join(connection: wire.Connection, group: str, *, metadata: bytes = b"") -> JoinGroupResponse:
    """Become a member, in two steps."""
    first = ask(connection, join_request(group, metadata=metadata), JoinGroupResponse, JOIN)
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    request = join_request(group, member_id=first.member_id, metadata=metadata)
    return ask(connection, request, JoinGroupResponse, JOIN)


def sync(
    connection: wire.Connection, group: str, *, generation_id: int, member_id: str, everything_to: str | None = None
) -> SyncGroupResponse:
    assignments = [SyncGroupRequestAssignment(member_id=everything_to, assignment=b"all")] if everything_to else []
    request = SyncGroupRequest(
        group_id=group, generation_id=generation_id, member_id=member_id, assignments=assignments
    )
    return ask(connection, request, SyncGroupResponse, SYNC)


def beat(connection: wire.Connection, group: str, *, generation_id: int, member_id: str) -> ErrorCode:
    request = HeartbeatRequest(group_id=group, generation_id=generation_id, member_id=member_id)
    return ErrorCode(ask(connection, request, HeartbeatResponse, BEAT).error_code)


def commit(
    connection: wire.Connection,
    group: str,
    offsets: dict[str, dict[int, int]],
    *,
    generation_id: int = -1,
    member_id: str = "",
) -> dict[str, set[ErrorCode]]:
    """The codes that were answered, by topic."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
                for index, offset in partitions.items()
            ],
        )
        for topic, partitions in offsets.items()
    ]
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation_id, member_id=member_id, topics=topics
    )
    answer = ask(connection, request, OffsetCommitResponse, COMMIT)
    return {topic.name: {ErrorCode(part.error_code) for part in topic.partitions} for topic in answer.topics}


def leave(connection: wire.Connection, group: str, member_ids: list[str]) -> list[ErrorCode]:
    members = [MemberIdentity(member_id=member_id) for member_id in member_ids]
    answer = ask(connection, LeaveGroupRequest(group_id=group, members=members), LeaveGroupResponse, LEAVE)
    return [ErrorCode(answer.error_code), *(ErrorCode(member.error_code) for member in answer.members)]


class Membership:
    """The only member of a stable group, which must still be that when a test is over."""

    def __init__(self, connection: wire.Connection, group: str) -> None:
        self.connection = connection
        self.group = group
        joined = join(connection, group)
        self.member_id, self.generation_id = joined.member_id, joined.generation_id
        assert self.sync().assignment == b"all"

    def sync(self) -> SyncGroupResponse:
        return sync(
            self.connection,
            self.group,
            generation_id=self.generation_id,
            member_id=self.member_id,
            everything_to=self.member_id,
        )

    def beat(self, generation_id: int | None = None) -> ErrorCode:
        generation_id = self.generation_id if generation_id is None else generation_id
        return beat(self.connection, self.group, generation_id=generation_id, member_id=self.member_id)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Groups of one member need not wait for others."""
    quick = {"group.initial.rebalance.delay.ms": "0"}
    with running(new_server(tmp_path_factory.mktemp("groups"), properties=quick)) as started:
        yield started


@pytest.fixture
def group(server: Server) -> str:
    name = f"group-{next(_numbers)}"
    find_coordinator(server.port, name)
    return name


@pytest.fixture
def connection(server: Server) -> Iterator[wire.Connection]:
    with wire.Connection(server.port) as opened:
        yield opened


@pytest.fixture
def member(connection: wire.Connection, group: str) -> Iterator[Membership]:
    stable = Membership(connection, group)
    yield stable
    assert stable.beat() is ErrorCode.NONE
    assert stable.sync().assignment == b"all"
    assert leave(connection, group, [stable.member_id]) == [ErrorCode.NONE, ErrorCode.NONE]


def test_ids_that_were_never_issued(server: Server, member: Membership) -> None:
    group, generation_id = member.group, member.generation_id
    with wire.Connection(server.port) as stranger:
        joined = ask(stranger, join_request(group, member_id=NEVER_ISSUED), JoinGroupResponse, JOIN)
        assert joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert beat(stranger, group, generation_id=generation_id, member_id=NEVER_ISSUED) is ErrorCode.UNKNOWN_MEMBER_ID
        synced = sync(stranger, group, generation_id=generation_id, member_id=NEVER_ISSUED, everything_to=NEVER_ISSUED)
        assert synced.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        committed = commit(stranger, group, {"t": {0: 1}}, generation_id=generation_id, member_id=NEVER_ISSUED)
        assert committed == {"t": {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}}
        assert leave(stranger, group, [NEVER_ISSUED]) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]


def test_ids_in_groups_that_never_were(connection: wire.Connection, group: str) -> None:
    joined = ask(connection, join_request(group, member_id=NEVER_ISSUED), JoinGroupResponse, JOIN)
    assert joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(connection, group, generation_id=1, member_id=NEVER_ISSUED) is ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(connection, group, generation_id=1, member_id=NEVER_ISSUED).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert leave(connection, group, [NEVER_ISSUED])[-1] is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("wrong_by", [-1, 1, 1_000_000])
def test_generations_behind_and_ahead(member: Membership, new_topic: Callable[..., str], wrong_by: int) -> None:
    topic, group, generation_id = new_topic(), member.group, member.generation_id + wrong_by
    connection, member_id = member.connection, member.member_id
    assert member.beat(generation_id) is ErrorCode.ILLEGAL_GENERATION
    synced = sync(connection, group, generation_id=generation_id, member_id=member_id, everything_to=member_id)
    assert (synced.error_code, synced.assignment) == (ErrorCode.ILLEGAL_GENERATION, b"")
    committed = commit(connection, group, {topic: {0: 1}}, generation_id=generation_id, member_id=member_id)
    assert committed == {topic: {ErrorCode.ILLEGAL_GENERATION}}
    assert offsets_of(connection, group) == {}


def test_an_assignment_from_a_stranger_is_not_taken(server: Server, connection: wire.Connection, group: str) -> None:
    joined = join(connection, group)
    with wire.Connection(server.port) as stranger:
        synced = sync(
            stranger, group, generation_id=joined.generation_id, member_id=NEVER_ISSUED, everything_to=NEVER_ISSUED
        )
        assert (synced.error_code, synced.assignment) == (ErrorCode.UNKNOWN_MEMBER_ID, b"")
    who: Who = {"generation_id": joined.generation_id, "member_id": joined.member_id}
    assert beat(connection, group, **who) is ErrorCode.NONE
    request = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[
            SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine"),
            SyncGroupRequestAssignment(member_id=NEVER_ISSUED, assignment=b"of somebody who is not there"),
        ],
    )
    assert ask(connection, request, SyncGroupResponse, SYNC).assignment == b"mine"
    assert leave(connection, group, [joined.member_id, NEVER_ISSUED])[1:] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]


def test_commits_for_foreign_topics(member: Membership, new_topic: Callable[..., str]) -> None:
    """Offsets of any partition that exists may be committed, subscribed to or not; of others, none."""
    topic, connection = new_topic(2), member.connection
    who: Who = {"generation_id": member.generation_id, "member_id": member.member_id}
    nowhere = {f"nowhere-{number}": dict.fromkeys(range(10), 7) for number in range(200)}
    codes = commit(connection, member.group, {topic: {0: 5, 1: 6}} | nowhere, **who)
    assert codes.pop(topic) == {ErrorCode.NONE}
    assert codes == {name: {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} for name in nowhere}
    beyond = {topic: {2: 1, 2**31 - 1: 1, -1: 1}}
    codes = commit(connection, member.group, beyond, **who)
    assert codes == {topic: {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}}
    assert offsets_of(connection, member.group) == {topic: {0: 5, 1: 6}}


def test_commits_of_nobody_for_a_group_with_members(member: Membership, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    assert commit(member.connection, member.group, {topic: {0: 1}}) == {topic: {ErrorCode.UNKNOWN_MEMBER_ID}}
    assert offsets_of(member.connection, member.group) == {}


@pytest.mark.alone
def test_a_storm_of_heartbeats(server: Server, member: Membership) -> None:
    """From the member and from strangers, as fast as they can; others are served meanwhile."""
    rounds, connections = 40, 10
    before, _ = memory_mib(server.pid)
    with ExitStack() as stack, wire.Connection(server.port) as bystander:
        storming = [stack.enter_context(wire.Connection(server.port)) for _ in range(connections)]
        started, used = time.monotonic(), cpu_seconds(server.pid)
        slowest_s = 0.0
        for _ in range(rounds):
            for number, each in enumerate(storming):
                who = member.member_id if number % 2 else NEVER_ISSUED
                request = HeartbeatRequest(group_id=member.group, generation_id=member.generation_id, member_id=who)
                for _ in range(PIPELINED):
                    each.send(request.api_key, BEAT, encode(request, BEAT))
            asked = time.monotonic()
            assert wire.brokers_known(bystander) == 1
            slowest_s = max(slowest_s, time.monotonic() - asked)
            for number, each in enumerate(storming):
                codes = {heard(each.receive(), HeartbeatResponse, BEAT).error_code for _ in range(PIPELINED)}
                assert codes == {ErrorCode.NONE if number % 2 else ErrorCode.UNKNOWN_MEMBER_ID}
        count = rounds * connections * PIPELINED
        taken_s, used_s = time.monotonic() - started, cpu_seconds(server.pid) - used
    during, _ = memory_mib(server.pid)
    assert slowest_s < 2, f"somebody else waited {slowest_s:.1f} s"
    assert used_s / count < 0.001, f"{count} heartbeats in {taken_s:.1f} s took {used_s:.1f} s of CPU"
    assert IS_KAFKA or during - before < 10, f"{before:.1f} MiB became {during:.1f} MiB"


@pytest.mark.skipif(IS_KAFKA, reason="Apache Kafka 4.3.1 left the second JoinGroup unanswered for 30 seconds")
def test_a_megabyte_of_metadata(server: Server, connection: wire.Connection, group: str) -> None:
    """The leader is shown it; the log cannot take it, so there is no generation with it, and the group goes on."""
    metadata = b"m" * MEGABYTE
    joined = join(connection, group, metadata=metadata)
    assert [member.metadata for member in joined.members] == [metadata]
    who: Who = {"generation_id": joined.generation_id, "member_id": joined.member_id}
    synced = sync(connection, group, everything_to=joined.member_id, **who)
    assert synced.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert beat(connection, group, **who) is ErrorCode.REBALANCE_IN_PROGRESS
    smaller = ask(connection, join_request(group, member_id=joined.member_id), JoinGroupResponse, JOIN)
    assert smaller.generation_id == joined.generation_id + 1
    assert leave(connection, group, [joined.member_id]) == [ErrorCode.NONE, ErrorCode.NONE]


@pytest.mark.skipif(IS_KAFKA, reason="the memory of a JVM is its heap, whatever it holds")
def test_megabytes_of_metadata_of_those_who_never_join_are_not_kept(
    server: Server, connection: wire.Connection, group: str
) -> None:
    request = join_request(group, metadata=b"m" * MEGABYTE)
    assert ask(connection, request, JoinGroupResponse, JOIN).error_code == ErrorCode.MEMBER_ID_REQUIRED
    before, _ = memory_mib(server.pid)
    for _ in range(100):
        assert ask(connection, request, JoinGroupResponse, JOIN).error_code == ErrorCode.MEMBER_ID_REQUIRED
    during, _ = memory_mib(server.pid)
    assert during - before < 20, f"{before:.1f} MiB became {during:.1f} MiB"


@pytest.mark.skipif(IS_KAFKA, reason="Apache Kafka 4.3.1 took more than a minute for the first generation")
@pytest.mark.alone
def test_ten_thousand_members(tmp_path: Path) -> None:
    """They share a generation, which goes into the log as one record, and all of them can leave."""
    wanted = CROWD + 500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"NOT TESTED: {CROWD} members need {wanted} open files, and only {hard} are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft if soft == resource.RLIM_INFINITY else max(soft, wanted), hard))
    with running(new_server(tmp_path)) as server, ExitStack() as stack, wire.Connection(server.port) as bystander:
        find_coordinator(server.port, "crowd")
        (before, _), used = memory_mib(server.pid), cpu_seconds(server.pid)
        crowd = [stack.enter_context(wire.Connection(server.port, timeout_s=60)) for _ in range(CROWD)]
        members, leader = join_as_a_crowd(crowd, bystander)
        during, _ = memory_mib(server.pid)
        last: Who = {"generation_id": leader.generation_id, "member_id": members[-1]}
        assert beat(bystander, "crowd", **last) is ErrorCode.NONE
        assigned = sync(
            bystander,
            "crowd",
            generation_id=leader.generation_id,
            member_id=leader.member_id,
            everything_to=members[-1],
        )
        assert assigned.error_code == ErrorCode.NONE
        assert sync(bystander, "crowd", **last).assignment == b"all"
        for begin in range(0, CROWD, 1_000):
            assert leave(bystander, "crowd", members[begin : begin + 1_000]) == [ErrorCode.NONE] * 1_001
        assert beat(bystander, "crowd", **last) is ErrorCode.UNKNOWN_MEMBER_ID
        used_s = cpu_seconds(server.pid) - used
    assert used_s < 20, f"{CROWD} members took {used_s:.1f} s of CPU"
    assert during - before < 150, f"{before:.1f} MiB became {during:.1f} MiB"


def join_as_a_crowd(crowd: list[wire.Connection], bystander: wire.Connection) -> tuple[list[str], JoinGroupResponse]:
    """All at once, each on its connection: their ids, and what the leader was told."""
    body = encode(join_request("crowd", metadata=b"some-topic"), NO_IDS_FIRST)
    for each in crowd:
        each.send(JoinGroupRequest.api_key, NO_IDS_FIRST, body)
    asked = time.monotonic()
    assert wire.brokers_known(bystander) == 1
    assert time.monotonic() - asked < 10
    joined = [heard(each.receive(), JoinGroupResponse, NO_IDS_FIRST) for each in crowd]
    assert {(answer.error_code, answer.generation_id) for answer in joined} == {(ErrorCode.NONE, 1)}
    members = [answer.member_id for answer in joined]
    (leader,) = (answer for answer in joined if answer.members)
    assert sorted(member.member_id for member in leader.members) == sorted(frozenset(members))
    return members, leader


def offsets_of(connection: wire.Connection, group: str) -> dict[str, dict[int, int]]:
    answer = ask(connection, OffsetFetchRequest(group_id=group, topics=None), OffsetFetchResponse, FETCH)
    return {
        topic.name: {part.partition_index: part.committed_offset for part in topic.partitions}
        for topic in answer.topics
    }
