"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup in all their versions, over the wire."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.server.group_clients import (
    QUICK,
    find_coordinator,
    heartbeat,
    join,
    node_with_topic,
    stable_member,
    sync,
)
from tests.unit.server.rig import Client, Rig

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponse
from odradek.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.sync_group import SyncGroupRequest


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins(version: int) -> None:
    rig = Rig(properties=QUICK)

    async def run() -> JoinGroupResponse:
        client = rig.connect()
        await find_coordinator(client)
        first: JoinGroupResponse = await client.ask(join(), version)
        if version < 4:
            return first
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert first.protocol_name == (None if version >= 7 else "")
        return await client.ask(join(member_id=first.member_id), version)  # type: ignore[no-any-return]

    joined = rig.run(run)
    client_id, uuid = joined.member_id.split("-", 1)
    assert (client_id, len(uuid), uuid[14]) == ("tester", 36, "4")
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    assert (joined.leader, [member.member_id for member in joined.members]) == (joined.member_id, [joined.member_id])


@pytest.mark.parametrize("version", range(6))
def test_everyone_gets_an_assignment(version: int) -> None:
    rig = Rig(properties=QUICK | {"group.initial.rebalance.delay.ms": "1000"})

    async def run() -> None:
        clients = [rig.connect() for _ in range(3)]
        await find_coordinator(clients[0])
        asked = [client.send(join(), 3, client_id=name) for client, name in zip(clients, "abc", strict=True)]
        joined = [await client.answer(at, join(), 3) for client, at in zip(clients, asked, strict=True)]
        assert {answer.generation_id for answer in joined} == {1}
        assert [len(answer.members) for answer in joined] == [3, 0, 0]
        requests = [sync(joined[0], a=b"x", b=b"y"), sync(joined[1]), sync(joined[2])]
        last_first = [clients[index].send(requests[index], version) for index in (2, 1, 0)]
        synced = [
            await clients[index].answer(at, requests[index], version)
            for index, at in zip((2, 1, 0), last_first, strict=True)
        ]
        assert [(answer.error_code, answer.assignment) for answer in synced] == [(0, b""), (0, b"y"), (0, b"x")]
        assert {answer.protocol_name for answer in synced} == {"range" if version == 5 else None}
        for client, answer in zip(clients, joined, strict=True):
            for beat_version in range(5):
                assert (await client.ask(heartbeat(answer), beat_version)).error_code == 0

    rig.run(run)


@pytest.mark.parametrize("version", range(6))
def test_a_member_leaves(version: int) -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = rig.connect()
        await find_coordinator(client)
        joined = await stable_member(client)
        identity = MemberIdentity(member_id=joined.member_id)
        request = LeaveGroupRequest(group_id="g", member_id=joined.member_id, members=[identity])
        for code in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
            response = await client.ask(request, version)
            if version < 3:
                assert (response.error_code, response.members) == (code, [])
            else:
                assert response.error_code == 0
                assert [(each.member_id, each.error_code) for each in response.members] == [(joined.member_id, code)]
        assert (await client.ask(heartbeat(joined), 4)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    rig.run(run)


async def codes(client: Client, group_id: str) -> list[int]:
    """What each API of a member says."""
    asked = [
        (join(group_id), 3),
        (SyncGroupRequest(group_id=group_id, generation_id=1, member_id="m", assignments=[]), 3),
        (HeartbeatRequest(group_id=group_id, generation_id=1, member_id="m"), 3),
        (LeaveGroupRequest(group_id=group_id, member_id="m"), 1),
    ]
    return [(await client.ask(request, version)).error_code for request, version in asked]


def test_no_group_has_an_empty_name() -> None:
    rig = Rig(properties=QUICK)

    async def run() -> list[int]:
        client = rig.connect()
        await find_coordinator(client)
        return await codes(client, "")

    assert rig.run(run) == [ErrorCode.INVALID_GROUP_ID] * 4


def test_without_its_topic_nobody_coordinates() -> None:
    rig = Rig(properties=QUICK)

    async def run() -> list[int]:
        return await codes(rig.connect(), "g")

    assert rig.run(run) == [ErrorCode.NOT_COORDINATOR] * 4


def test_sync_group_must_name_the_protocol_from_version_5_on() -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = rig.connect()
        await find_coordinator(client)
        joined = await client.ask(join(), 3)
        request = SyncGroupRequest(group_id="g", generation_id=1, member_id=joined.member_id, assignments=[])
        assert (await client.ask(request, 5)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert (await client.ask(request, 4)).error_code == 0

    rig.run(run)


def test_a_member_whose_connection_breaks_while_it_waits_is_left_out_in_time() -> None:
    rig = Rig(properties=QUICK | {"group.initial.rebalance.delay.ms": "500"})

    async def run() -> None:
        stays, goes = rig.connect(), rig.connect()
        await find_coordinator(stays)
        at = stays.send(join(rebalance_timeout_ms=20_000), 3, client_id="stays")
        goes.send(join(rebalance_timeout_ms=20_000), 3, client_id="goes")
        goes.wire.lose(None)
        joined = await stays.answer(at, join(), 3)
        assert len(joined.members) == 2
        assert (await stays.ask(sync(joined, stays=b"all"), 5)).assignment == b"all"
        told = [0]
        while told[-1] == 0:
            await asyncio.sleep(1)
            told.append((await stays.ask(heartbeat(joined), 4)).error_code)
        assert told[-1] == ErrorCode.REBALANCE_IN_PROGRESS
        again = await stays.ask(join(member_id=joined.member_id), 5)
        assert (again.generation_id, len(again.members)) == (2, 1)

    rig.run(run)


def test_a_megabyte_of_metadata_is_passed_on_but_too_large_for_the_log() -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        large = [JoinGroupRequestProtocol(name="range", metadata=bytes(1 << 20))]
        joined = await client.ask(join(protocols=large), 3)
        assert len(joined.members[0].metadata) == 1 << 20
        assert (await client.ask(sync(joined, tester=b"all"), 5)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        # The group is as it was before the assignment, so everybody may join again, with less.
        assert (await client.ask(heartbeat(joined), 4)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        smaller = await client.ask(join(member_id=joined.member_id), 3)
        assert (await client.ask(sync(smaller, tester=b"all"), 5)).assignment == b"all"

    rig.run(run)


def test_ten_thousand_members_share_a_generation() -> None:
    rig = Rig(properties=QUICK | {"group.initial.rebalance.delay.ms": "1000"})
    count = 10_000

    async def run() -> None:
        client = rig.connect()
        await find_coordinator(client)
        clients = [rig.connect() for _ in range(count)]
        asked = [each.send(join(), 3, client_id="m") for each in clients]
        joined = [await each.answer(at, join(), 3) for each, at in zip(clients, asked, strict=True)]
        assert {answer.generation_id for answer in joined} == {1}
        assert len({answer.member_id for answer in joined}) == count
        (leader,) = (answer for answer in joined if answer.members)
        assert len(leader.members) == count
        for each, answer in zip(clients, joined, strict=True):
            assert (await each.ask(heartbeat(answer), 4)).error_code == 0

    rig.run(run)
