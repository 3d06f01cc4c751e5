"""OffsetCommit, OffsetFetch and OffsetDelete in all their versions, over the wire."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.server.group_clients import QUICK, commit, committed, node_with_topic, stable_member
from tests.unit.server.rig import Client, Rig

from odradek.ids import ZERO_UUID
from odradek.metadata.topic_names import GROUP_TOPIC
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest
from odradek.protocol.messages.leave_group import LeaveGroupRequest
from odradek.protocol.messages.offset_commit import OffsetCommitResponse
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def codes(response: OffsetCommitResponse | OffsetDeleteResponse) -> dict[tuple[str, int], int]:
    return {(each.name, part.partition_index): part.error_code for each in response.topics for part in each.partitions}


@pytest.mark.parametrize("version", range(2, 11))
def test_a_member_commits(version: int) -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        joined = await stable_member(client)
        request = commit(
            "g",
            "t",
            {0: 5, 7: 6},
            member_id=joined.member_id,
            generation_id_or_member_epoch=1,
            topic_id=rig.topic_id("t"),
        )
        response = await client.ask(request, version)
        (topic,) = response.topics
        assert (topic.name, topic.topic_id) == (("t", ZERO_UUID) if version < 10 else ("", rig.topic_id("t")))
        assert {part.partition_index: part.error_code for part in topic.partitions} == {0: 0, 7: UNKNOWN}
        assert await committed(client) == {0: 5}
        request.generation_id_or_member_epoch = 2
        refused = await client.ask(request, version)
        assert {part.error_code for part in refused.topics[0].partitions} == {ErrorCode.ILLEGAL_GENERATION, UNKNOWN}

    rig.run(run)


@pytest.mark.parametrize("version", range(2, 6))
def test_old_clients_may_say_how_long_an_offset_is_kept(version: int) -> None:
    rig = Rig(properties=QUICK | {"offsets.retention.check.interval.ms": "1000"})

    async def run() -> None:
        client = await node_with_topic(rig)
        await client.ask(commit("g", "t", {1: 6}), version)
        assert codes(await client.ask(commit("g", "t", {0: 5}, retention_time_ms=60_000), version)) == {("t", 0): 0}
        await asyncio.sleep(30)
        assert await committed(client) == {0: 5, 1: 6}
        await asyncio.sleep(60)
        assert await committed(client) == ({1: 6} if version < 5 else {0: 5, 1: 6})

    rig.run(run)


def test_commits_of_a_turn_are_written_together() -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        members = [client, rig.connect(), rig.connect()]
        for each in members:
            await each.ask(commit("g", "t", {0: 1}), 9)
        log_of_group = [hosted for hosted in rig.node.rooms.replicas if hosted.topic == GROUP_TOPIC]
        before = [(hosted.appends, hosted.partition.log.log_end_offset) for hosted in log_of_group]
        asked = [(each, each.send(commit("g", "t", {index: 9}), 9)) for index, each in enumerate(members)]
        for each, number in asked:
            assert codes(await each.answer(number, commit("g", "t", {}), 9)) != {}
        grown = [
            (hosted.appends - appends, hosted.partition.log.log_end_offset - end)
            for hosted, (appends, end) in zip(log_of_group, before, strict=True)
        ]
        assert sorted(grown)[-1] == (1, 3)

    rig.run(run)


def test_foreign_topics_are_refused_one_by_one() -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        request = commit("g", "t", {0: 1, 2: 3, 3: 4, -1: 5})
        request.topics += commit("g", "nowhere", {0: 1}).topics
        assert codes(await client.ask(request, 9)) == {
            ("t", 0): 0,
            ("t", 2): 0,
            ("t", 3): UNKNOWN,
            ("t", -1): UNKNOWN,
            ("nowhere", 0): UNKNOWN,
        }
        assert await committed(client) == {0: 1, 2: 3}
        assert codes(await client.ask(commit("g", "nowhere", {0: 1}), 9)) == {("nowhere", 0): UNKNOWN}
        by_id = await client.ask(commit("g", "", {0: 1}, topic_id=b"\7" * 16), 10)
        assert by_id.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    rig.run(run)


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_are_fetched(version: int) -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        request = commit("g", "t", {0: 5})
        request.topics[0].partitions[0].committed_metadata = "note"
        request.topics[0].partitions[0].committed_leader_epoch = 3
        await client.ask(request, 9)
        epoch = 3 if version >= 5 else -1
        assert await fetched(client, version, rig, [0, 1]) == [(0, 5, epoch, "note", 0), (1, -1, -1, "", 0)]
        if version >= 2:
            assert await fetched(client, version, rig, None) == [(0, 5, epoch, "note", 0)]

    rig.run(run)


async def fetched(client: Client, version: int, rig: Rig, partitions: list[int] | None) -> list[tuple[object, ...]]:
    """Of the one topic, as index, offset, epoch, metadata and error."""
    topic_id = rig.topic_id("t")
    if version < 8:
        topics = None
        if partitions is not None:
            topics = [OffsetFetchRequestTopic(name="t", partition_indexes=partitions)]
        response = await client.ask(OffsetFetchRequest(group_id="g", topics=topics), version)
        assert response.error_code == 0
        (topic,) = response.topics
    else:
        wanted = None
        if partitions is not None:
            wanted = [OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=partitions)]
        groups = [
            OffsetFetchRequestGroup(group_id="g", topics=wanted),
            OffsetFetchRequestGroup(group_id="h", topics=None),
        ]
        response = await client.ask(OffsetFetchRequest(groups=groups, require_stable=True), version)
        known, empty = response.groups
        assert (empty.group_id, empty.topics, empty.error_code) == ("h", [], 0)
        (topic,) = known.topics
        assert topic.topic_id == (topic_id if version >= 10 else ZERO_UUID)
    if version < 10:
        assert topic.name == "t"
    return [
        (part.partition_index, part.committed_offset, part.committed_leader_epoch, part.metadata, part.error_code)
        for part in topic.partitions
    ]


def test_topics_that_are_gone_are_left_out_where_ids_are_told() -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        unknown = OffsetFetchRequestTopics(topic_id=b"\7" * 16, partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id="g", topics=[unknown])
        response = await client.ask(OffsetFetchRequest(groups=[group]), 10)
        (part,) = response.groups[0].topics[0].partitions
        assert (part.error_code, part.committed_offset) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)

    rig.run(run)


@pytest.mark.parametrize("version", [1, 2, 7, 8])
def test_who_coordinates_nothing_says_so(version: int) -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        group = OffsetFetchRequestGroup(group_id="g", topics=None)
        response = await rig.connect().ask(OffsetFetchRequest(group_id="g", topics=topics, groups=[group]), version)
        if version == 1:
            told = response.topics[0].partitions[0].error_code
        else:
            told = response.error_code if version < 8 else response.groups[0].error_code
        assert told == ErrorCode.NOT_COORDINATOR

    rig.run(run)


def test_offsets_are_deleted_where_nobody_needs_them() -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        await rig.create_topic("u")
        joined = await stable_member(client)
        member = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
        await client.ask(commit("g", "t", {0: 5}, **member), 9)
        await client.ask(commit("g", "u", {0: 6}, **member), 9)
        topics = [
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)]
            )
            for name in ("t", "u", "nowhere")
        ]
        response = await client.ask(OffsetDeleteRequest(group_id="g", topics=topics), 0)
        assert response.error_code == 0
        assert codes(response) == {
            ("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ("t", 9): UNKNOWN,
            ("u", 0): 0,
            ("u", 9): UNKNOWN,
            ("nowhere", 0): UNKNOWN,
            ("nowhere", 9): UNKNOWN,
        }
        assert await committed(client) == {0: 5}
        assert await committed(client, topic="u") == {}
        unknown = await client.ask(OffsetDeleteRequest(group_id="h", topics=topics), 0)
        assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        await client.ask(LeaveGroupRequest(group_id="g", member_id=joined.member_id), 1)
        await client.ask(OffsetDeleteRequest(group_id="g", topics=topics), 0)
        assert await committed(client) == {}

    rig.run(run)


def test_offsets_of_a_deleted_topic_go_with_it() -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        for group in ("g", "h", "i"):
            await client.ask(commit(group, "t", {0: 5, 1: 6}), 9)
        await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        await rig.create_topic("t", 3)
        assert [await committed(client, group) for group in ("g", "h", "i")] == [{}, {}, {}]

    rig.run(run)
