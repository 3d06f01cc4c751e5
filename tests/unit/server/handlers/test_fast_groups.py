"""Requests of group members are answered and written alike, byte for byte, whichever way they are read."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from tests.unit.server.group_clients import QUICK, commit, heartbeat, join, node_with_topic, stable_member
from tests.unit.server.rig import Client, Rig, decode_response, framed, request_body

from odradek.ids import Uuid
from odradek.ports import FileSlice
from odradek.protocol.api import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from odradek.protocol.messages.offset_commit import OffsetCommitRequest
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.records.batch import COMPRESSION_MASK, iter_batches, read_header

SHORTENED = (ApiKey.OFFSET_COMMIT, ApiKey.HEARTBEAT, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
Story = Callable[[Rig, Client], Awaitable[object]]


def told(
    story: Story, *, by_fast_path: bool, properties: dict[str, str] | None
) -> tuple[object, bytes, Counter[ApiKey]]:
    """What the story returns, the coordinator's log after it, and how many requests went the short way."""
    rig = Rig(properties=QUICK | (properties or {}))
    taken: Counter[ApiKey] = Counter()

    def count(key: ApiKey, fast: Any) -> Any:
        def handle(*request: Any) -> Any:
            answer = fast(*request)
            taken[key] += answer is not None
            return answer

        return handle

    async def run() -> tuple[object, bytes]:
        endpoints = rig.node.rooms.listeners.by_name["PLAINTEXT"].scope.endpoints
        for key in SHORTENED:
            route = endpoints.routes[key]
            for version in range(route.min_version, route.max_version + 1):
                endpoint = endpoints.compile(key, version)
                if endpoint.read is not None:
                    endpoint.read = count(key, endpoint.read) if by_fast_path else lambda frame, position: None
                else:
                    assert endpoint.fast_path is not None
                    endpoint.fast_path = count(key, endpoint.fast_path) if by_fast_path else None
        client = await node_with_topic(rig)
        result = await story(rig, client)
        written = b""
        for index in range(3):
            partition_log = rig.node.rooms.replicas.require("__consumer_offsets", index).partition.log
            if partition_log.log_end_offset:
                read = partition_log.read(0, max_bytes=1 << 20, end_offset=1 << 40, minimum_one=True)
                assert isinstance(read.records, FileSlice)
                written += read.records.read()
        return result, written

    result, written = rig.run(run)
    return result, written, taken


def same_both_ways(story: Story, *, properties: dict[str, str] | None = None) -> Counter[ApiKey]:
    """How many requests of the story went the short way."""
    generic, generic_log, none = told(story, by_fast_path=False, properties=properties)
    fast, fast_log, taken = told(story, by_fast_path=True, properties=properties)
    assert not none
    assert fast == generic
    assert fast_log == generic_log
    return taken


async def raw_answers(rig: Rig, request: Message, version: int, *, spoil: int | None = None) -> tuple[bytes, bool]:
    """All that is sent on a connection of its own, and whether that is closed."""
    client = rig.connect()
    body = bytearray(request_body(request, version, 7))
    if spoil is not None:
        body[10 + len("tester") + spoil] ^= 0xFF
    client.wire.on_change = lambda: None
    client.wire.feed(framed(request_body(ApiVersionsRequest(), 0, 6)))  # Who is known may take the shortest way.
    client.wire.feed(framed(body))
    await asyncio.sleep(0.001)
    return bytes(client.wire.sent), client.wire.closed


def commits(joined: JoinGroupResponse, topic_id: Uuid) -> list[OffsetCommitRequest]:
    def of_member(offsets: dict[int, int], **more: Any) -> OffsetCommitRequest:
        who = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
        fields = {"group_id": "g", "topic_id": topic_id, **who, **more}
        return commit(fields.pop("group_id"), "t", offsets, **fields)

    with_metadata = of_member({0: 4, 1: 5})
    with_metadata.topics[0].partitions[1].committed_metadata = "wie weit é"
    without_metadata = of_member({1: 9})
    without_metadata.topics[0].partitions[0].committed_metadata = None
    too_much_metadata = of_member({0: 4, 1: 5})
    too_much_metadata.topics[0].partitions[0].committed_metadata = "x" * 5_000
    long_metadata = of_member({0: 4, 1: 5})
    long_metadata.topics[0].partitions[0].committed_metadata = "x" * 200
    with_epoch = of_member({2: 8})
    with_epoch.topics[0].partitions[0].committed_leader_epoch = 3
    two_topics = of_member({0: 1})
    two_topics.topics += of_member({1: 1}).topics
    no_partition, no_topic = of_member({}), of_member({})
    no_topic.topics = []
    elsewhere = of_member({0: 1}, topic_id=b"?" * 16)
    elsewhere.topics[0].name = "nowhere"
    return [
        of_member({0: 1}),
        of_member({0: 2, 1: 3, 2: 4}),
        of_member({0: (1 << 63) - 1}),
        of_member({0: 2, 3: 3}),
        of_member({-1: 3}),
        with_metadata,
        without_metadata,
        too_much_metadata,
        long_metadata,
        with_epoch,
        two_topics,
        no_partition,
        no_topic,
        elsewhere,
        of_member({0: 1}, generation_id_or_member_epoch=5),
        of_member({0: 1}, member_id="stranger"),
        of_member({0: 1}, group_instance_id="nobody"),
        of_member({0: 1}, member_id="", generation_id_or_member_epoch=-1),
        of_member({0: 1}, group_id="other", member_id="", generation_id_or_member_epoch=-1),
        of_member({0: 2}, group_id="other", member_id="", generation_id_or_member_epoch=-1),
        of_member({0: 2}, group_id="third"),
        of_member({0: 2}, group_id=""),
    ]


BY_HAND = 21
"""Of the requests of the next story."""


def commit_story(version: int) -> Story:
    async def story(rig: Rig, client: Client) -> object:
        joined = await stable_member(client)
        answers = [await raw_answers(rig, each, version) for each in commits(joined, rig.topic_id("t"))]
        client.send(join(member_id=joined.member_id), 5)  # The group prepares a rebalance; nobody else is there.
        answers += [await raw_answers(rig, each, version) for each in commits(joined, rig.topic_id("t"))[:2]]
        return answers

    return story


@pytest.mark.parametrize("version", range(2, 11))
def test_commits(version: int) -> None:
    taken = same_both_ways(commit_story(version))[ApiKey.OFFSET_COMMIT]
    # From 8 on 200 bytes of metadata have a size of two bytes, and so has what is too much of it.
    assert taken == (0 if version < 5 else BY_HAND if version < 8 else BY_HAND - 2)


@pytest.mark.parametrize("version", [5, 6, 7, 8, 9, 10])
def test_spoilt_commits(version: int) -> None:
    async def story(rig: Rig, client: Client) -> object:
        joined = await stable_member(client)
        request = commits(joined, rig.topic_id("t"))[1]
        size = len(request_body(request, version, 7)) - 10 - len("tester")
        return [await raw_answers(rig, request, version, spoil=spoil) for spoil in range(size)]

    assert same_both_ways(story)[ApiKey.OFFSET_COMMIT] > 0


def test_commits_are_compressed_as_the_configuration_says() -> None:
    for codec in (0, 1):
        _, written, _ = told(
            commit_story(9), by_fast_path=True, properties={"offsets.topic.compression.codec": str(codec)}
        )
        headers = [read_header(batch) for batch in iter_batches(written)]
        assert {header.attributes & COMPRESSION_MASK for header in headers} == {codec}


@pytest.mark.parametrize("version", range(5))
def test_heartbeats(version: int) -> None:
    async def story(rig: Rig, client: Client) -> object:
        joined = await stable_member(client)
        beats = [
            heartbeat(joined),
            HeartbeatRequest(group_id="g", generation_id=7, member_id=joined.member_id),
            HeartbeatRequest(group_id="g", generation_id=1, member_id="stranger"),
            HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id, group_instance_id="nobody"),
            HeartbeatRequest(group_id="other", generation_id=1, member_id=joined.member_id),
            HeartbeatRequest(group_id="", generation_id=1, member_id=joined.member_id),
        ]
        if version < 3:
            del beats[3]
        answers = [await raw_answers(rig, each, version) for each in beats]
        size = len(request_body(beats[0], version, 7)) - 10 - len("tester")
        return answers + [await raw_answers(rig, beats[0], version, spoil=spoil) for spoil in range(size)]

    assert same_both_ways(story)[ApiKey.HEARTBEAT] > 5


TOGETHER = {"group.initial.rebalance.delay.ms": "100"}
"""So long that all of a story's members begin in one generation."""


async def all_joined(clients: Sequence[Client], requests: Sequence[JoinGroupRequest], version: int) -> list[Any]:
    numbers = [each.send(request, version) for each, request in zip(clients, requests, strict=True)]
    return [await each.answer(number, join(), version) for each, number in zip(clients, numbers, strict=True)]


async def all_synced(clients: Sequence[Client], joined: Sequence[JoinGroupResponse], version: int) -> list[bytes]:
    """Everyone's assignment, which is its member id."""
    numbers = []
    for each, answer in zip(clients, joined, strict=True):
        shares = [
            SyncGroupRequestAssignment(member_id=member.member_id, assignment=member.member_id.encode())
            for member in answer.members
        ]
        request = SyncGroupRequest(
            group_id="g",
            generation_id=answer.generation_id,
            member_id=answer.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=shares,
        )
        numbers.append(each.send(request, version))
    answers = [await each.answer(number, request, version) for each, number in zip(clients, numbers, strict=True)]
    return [answer.assignment for answer in answers]


async def stable_members(clients: Sequence[Client]) -> list[Any]:
    joined = await all_joined(clients, [join() for _ in clients], 3)
    assert await all_synced(clients, joined, 3) == [answer.member_id.encode() for answer in joined]
    return joined


@pytest.mark.parametrize("version", range(10))
@pytest.mark.parametrize("leader_last", [False, True])
def test_rebalances(version: int, leader_last: bool) -> None:
    """The leader sends everyone back to join; then one brings other protocols, one does not come, one is not known."""

    async def story(rig: Rig, client: Client) -> object:
        clients = [client, rig.connect(), rig.connect()]
        joined = await stable_members(clients)
        if leader_last:
            clients.reverse()
            joined.reverse()
        leader = next(number for number, answer in enumerate(joined) if answer.members)
        first = clients[leader].send(join(member_id=joined[leader].member_id), version)
        for number, each in enumerate(clients):
            if number != leader:
                beat = await each.ask(heartbeat(joined[number]), min(version, 4))
                assert beat.error_code == ErrorCode.REBALANCE_IN_PROGRESS
                each.send(join(member_id=joined[number].member_id), version)
        await clients[leader].answer(first, join(), version)
        joined = [decode_response(ApiKey.JOIN_GROUP, version, each.answered[-1][1]) for each in clients]
        assert [answer.generation_id for answer in joined] == [2, 2, 2]
        assert await all_synced(clients, joined, min(version, 5)) == [each.member_id.encode() for each in joined]
        other = [*join().protocols, JoinGroupRequestProtocol(name="sticky", metadata=b"x")]
        clients[0].send(join(member_id=joined[0].member_id, protocols=other), version)
        clients[1].send(join(member_id="stranger"), version)
        late = SyncGroupRequest(group_id="g", generation_id=2, member_id=joined[1].member_id, assignments=[])
        clients[1].send(late, min(version, 5))
        await asyncio.sleep(100)
        return [each.answered for each in clients]

    taken = same_both_ways(story, properties=TOGETHER)
    assert taken[ApiKey.JOIN_GROUP] == 4
    assert taken[ApiKey.SYNC_GROUP] >= 6


def test_one_that_has_gone_is_not_answered_and_the_others_are() -> None:
    async def story(rig: Rig, client: Client) -> object:
        clients = [client, rig.connect(), rig.connect()]
        joined = await stable_members(clients)
        for each, answer in zip(clients, joined, strict=True):
            each.send(join(member_id=answer.member_id), 5)
            if each is clients[1]:
                each.wire.lose(None)
        await asyncio.sleep(0.01)
        assert [len(each.answered) for each in clients] == [4, 2, 3]
        return [each.answered for each in clients]

    assert same_both_ways(story, properties=TOGETHER)[ApiKey.JOIN_GROUP] == 3


def test_requests_behind_one_that_waits_are_served_after_it() -> None:
    async def story(rig: Rig, client: Client) -> object:
        second = rig.connect()
        joined = await stable_members([client, second])
        answered = len(client.answered)
        client.send(join(member_id=joined[0].member_id), 5)
        for _ in range(3):
            client.send(heartbeat(joined[0]), 3)
        await asyncio.sleep(0.01)
        assert len(client.answered) == answered
        second.send(join(member_id=joined[1].member_id), 5)
        await asyncio.sleep(0.01)
        assert len(client.answered) == answered + 4
        return client.answered, second.answered

    assert same_both_ways(story, properties=TOGETHER)[ApiKey.HEARTBEAT] == 3


def test_a_coordinator_that_goes_lets_everyone_go() -> None:
    async def story(rig: Rig, client: Client) -> object:
        second = rig.connect()
        joined = await stable_members([client, second])
        client.send(join(member_id=joined[0].member_id), 5)
        await asyncio.sleep(0.01)
        answer = await rig.connect().ask(DeleteTopicsRequest(topic_names=["__consumer_offsets"], timeout_ms=1000), 5)
        assert answer.responses[0].error_code == 0
        await asyncio.sleep(0.01)
        await rig.create_topic("__consumer_offsets", 3)
        gone = decode_response(ApiKey.JOIN_GROUP, 5, client.answered[-1][1])
        assert isinstance(gone, JoinGroupResponse)
        assert gone.error_code == ErrorCode.NOT_COORDINATOR
        return client.answered

    assert same_both_ways(story, properties=TOGETHER)[ApiKey.JOIN_GROUP] == 1
