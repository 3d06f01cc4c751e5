"""ConsumerGroupHeartbeat and ConsumerGroupDescribe over the wire, and what a cluster of before answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.server.access.test_authorizer import CLOSED, allow
from tests.unit.server.group_clients import QUICK, commit, committed, node_with_topic
from tests.unit.server.rig import Client, Rig

from odradek.metadata.features import GROUP_VERSION
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.protocol.messages.list_groups import ListGroupsRequest
from odradek.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.security.acl import Operation, Permission, ResourceType

SAFE_DOWNGRADE = 2


async def beat(
    client: Client, member_id: str, epoch: int, version: int = 1, **said: Any
) -> ConsumerGroupHeartbeatResponse:
    if epoch == 0:
        said = {"rebalance_timeout_ms": 60_000, "topic_partitions": [], "subscribed_topic_names": ["t"]} | said
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **said)
    response: ConsumerGroupHeartbeatResponse = await client.ask(request, version)
    return response


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_comes_stays_and_goes(version: int) -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        topic_id = rig.topic_id("t")
        joined = await beat(client, "me" if version else "", 0, version)
        assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (0, 2, 5_000)
        assert joined.member_id is not None
        assert joined.member_id == "me" if version else len(joined.member_id) == 22
        assert joined.assignment is not None
        assert [each.topic_id for each in joined.assignment.topic_partitions] == [topic_id]
        stayed = await beat(client, joined.member_id, 2, version)
        assert (stayed.error_code, stayed.member_epoch, stayed.assignment) == (0, 2, None)
        described = await client.ask(
            ConsumerGroupDescribeRequest(group_ids=["g", "none"], include_authorized_operations=True), version
        )
        group, missing = described.groups
        assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2)
        (member,) = group.members
        assert (member.client_id, member.client_host) == ("tester", "/tester")
        assert [each.topic_name for each in member.assignment.topic_partitions] == ["t"]
        assert member.member_type == (1 if version else -1)
        assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group none not found.")
        assert group.authorized_operations > 0 > missing.authorized_operations
        left = await beat(client, joined.member_id, -1, version)
        assert (left.error_code, left.member_epoch) == (0, -1)
        again = await beat(client, joined.member_id, 2, version)
        assert again.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    rig.run(run)


def test_a_group_outlives_its_node() -> None:
    """What was written is read again: epochs, assignments and who holds what."""
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        await beat(client, "me", 0)
        mine = commit("g", "t", {0: 5}, member_id="me", generation_id_or_member_epoch=2)
        await client.ask(mine, 9)
        await rig.restart()
        client = rig.connect()
        stayed = await beat(client, "me", 2)
        assert (stayed.error_code, stayed.member_epoch) == (0, 2)
        assert await committed(client) == {0: 5}
        stale = await client.ask(commit("g", "t", {0: 6}, member_id="me", generation_id_or_member_epoch=3), 9)
        assert stale.topics[0].partitions[0].error_code == ErrorCode.STALE_MEMBER_EPOCH

    rig.run(run)


def test_topics_that_come_and_grow_reach_the_members() -> None:
    rig = Rig(properties=QUICK | {"group.consumer.assignment.interval.ms": "0"})

    async def run() -> None:
        client = await node_with_topic(rig)
        joined = await beat(client, "me", 0, subscribed_topic_names=[], subscribed_topic_regex="[tu]")
        assert joined.member_epoch == 2
        await rig.create_topic("u", 1)
        found = await beat(client, "me", 2)
        assert found.assignment is not None
        assert sorted(each.topic_id for each in found.assignment.topic_partitions) == sorted(
            [rig.topic_id("t"), rig.topic_id("u")]
        )
        wrong = await beat(client, "me", found.member_epoch, subscribed_topic_regex="[")
        assert wrong.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert wrong.error_message is not None
        assert wrong.error_message.startswith("SubscribedTopicRegex `[` is not a valid regular expression")

    rig.run(run)


def test_a_silent_member_loses_its_place() -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        await beat(client, "me", 0)
        await asyncio.sleep(44.9)
        assert (await beat(client, "me", 2)).error_code == 0
        await asyncio.sleep(45.1)
        assert (await beat(client, "me", 2)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        listed = await client.ask(ListGroupsRequest(types_filter=["consumer"]), 5)
        assert [(each.group_id, each.group_state, each.protocol_type) for each in listed.groups] == [
            ("g", "Empty", "consumer")
        ]

    rig.run(run)


def test_a_cluster_without_the_feature() -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        update = FeatureUpdateKey(feature=GROUP_VERSION, max_version_level=0, upgrade_type=SAFE_DOWNGRADE)
        changed = await client.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)
        assert changed.error_code == 0, changed
        refused = await beat(client, "me", 0)
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
        described = await client.ask(
            ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True), 1
        )
        assert [each.error_code for each in described.groups] == [ErrorCode.UNSUPPORTED_VERSION]

    rig.run(run)


def test_an_expression_finds_only_what_its_member_may_see() -> None:
    rig = Rig(properties=QUICK | CLOSED)

    async def run() -> None:
        await allow(rig, Operation.READ, ResourceType.GROUP, "g")
        await allow(rig, Operation.DESCRIBE, ResourceType.TOPIC, "t")
        client = await node_with_topic(rig)
        await rig.create_topic("tea", 1)
        joined = await beat(client, "me", 0, subscribed_topic_names=[], subscribed_topic_regex="t.*")
        assert joined.assignment is not None
        assert [each.topic_id for each in joined.assignment.topic_partitions] == [rig.topic_id("t")]
        hidden = await beat(client, "me", 2, subscribed_topic_names=["tea"])
        assert hidden.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await allow(rig, Operation.DESCRIBE, ResourceType.TOPIC, "tea")
        assert (await beat(client, "me", 2, subscribed_topic_names=["tea"])).error_code == 0
        describe = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
        (group,) = (await client.ask(describe, 1)).groups
        assert (group.error_code, len(group.members)) == (0, 1)
        await allow(rig, Operation.DESCRIBE, ResourceType.TOPIC, "tea", permission=Permission.DENY)
        (group,) = (await client.ask(describe, 1)).groups
        assert (group.error_code, group.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])

    rig.run(run)
