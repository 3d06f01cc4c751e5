"""DescribeGroups, ListGroups and DeleteGroups in all their versions, over the wire."""

from __future__ import annotations

import pytest
from tests.unit.server.group_clients import QUICK, SUBSCRIPTION, commit, committed, node_with_topic, stable_member
from tests.unit.server.rig import Client, Rig

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.leave_group import LeaveGroupRequest
from odradek.protocol.messages.list_groups import ListGroupsRequest

GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


async def three_groups(rig: Rig) -> Client:
    """One with a member, one that had one, and one of offsets alone."""
    client = await node_with_topic(rig)
    await stable_member(client, "busy")
    gone = await stable_member(client, "left")
    await client.ask(LeaveGroupRequest(group_id="left", member_id=gone.member_id), 1)
    await client.ask(commit("simple", "t", {0: 5}), 9)
    return client


@pytest.mark.parametrize("version", range(7))
def test_groups_are_described(version: int) -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await three_groups(rig)
        names = ["busy", "left", "simple", "nobody"]
        request = DescribeGroupsRequest(groups=names, include_authorized_operations=True)
        response = await client.ask(request, version)
        told = [(each.group_id, each.group_state, each.protocol_type, each.protocol_data) for each in response.groups]
        assert told == [
            ("busy", "Stable", "consumer", "range"),
            ("left", "Empty", "consumer", ""),
            ("simple", "Empty", "", ""),
            ("nobody", "Dead", "", ""),
        ]
        not_found = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0
        assert [each.error_code for each in response.groups] == [0, 0, 0, not_found]
        assert response.groups[3].error_message == ("Group nobody not found." if version >= 6 else None)
        assert response.groups[0].authorized_operations == (GROUP_OPERATIONS if version >= 3 else -(1 << 31))
        (member,) = response.groups[0].members
        assert (member.client_id, member.client_host) == ("tester", "/tester")
        assert (member.member_metadata, member.member_assignment) == (SUBSCRIPTION, b"all")

    rig.run(run)


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed(version: int) -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await three_groups(rig)

        async def listed(**filters: list[str]) -> dict[str, tuple[str, str, str]]:
            response = await client.ask(ListGroupsRequest(**filters), version)  # type: ignore[arg-type]
            assert response.error_code == 0
            return {each.group_id: (each.protocol_type, each.group_state, each.group_type) for each in response.groups}

        everything = await listed()
        assert {name: protocol for name, (protocol, _, _) in everything.items()} == {
            "busy": "consumer",
            "left": "consumer",
            "simple": "",
        }
        if version >= 4:
            assert {name: state for name, (_, state, _) in everything.items()} == {
                "busy": "Stable",
                "left": "Empty",
                "simple": "Empty",
            }
            assert set(await listed(states_filter=["stable"])) == {"busy"}
            assert set(await listed(states_filter=["Empty", "Dead"])) == {"left", "simple"}
            assert await listed(states_filter=["PreparingRebalance"]) == {}
        if version >= 5:
            assert {kind for _, _, kind in everything.values()} == {"classic"}
            assert set(await listed(types_filter=["Classic"])) == set(everything)
            assert await listed(types_filter=["consumer"]) == {}

    rig.run(run)


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted(version: int) -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await three_groups(rig)
        request = DeleteGroupsRequest(groups_names=["busy", "left", "simple", "simple", "nobody"])
        response = await client.ask(request, version)
        assert {each.group_id: each.error_code for each in response.results} == {
            "busy": ErrorCode.NON_EMPTY_GROUP,
            "left": 0,
            "simple": 0,
            "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        assert await committed(client, "simple") == {}
        remaining = await client.ask(ListGroupsRequest(), 4)
        assert [each.group_id for each in remaining.groups] == ["busy"]

    rig.run(run)
