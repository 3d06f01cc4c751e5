"""Pages of partitions: every partition once, in order, however small the pages are."""

from __future__ import annotations

import pytest
from tests.unit.server.rig import Client, Rig

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)

ALL = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1)]


async def with_topics(rig: Rig) -> Client:
    for name, partitions in (("c", 2), ("a", 3), ("b", 1)):
        await rig.create_topic(name, partitions)
    return rig.connect()


async def describe(
    client: Client, *names: str, limit: int = 2000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
    )
    response: DescribeTopicPartitionsResponse = await client.ask(request, 0)
    return response


def listed(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, int]]:
    return [(topic.name, part.partition_index) for topic in response.topics for part in topic.partitions]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 6, 2000])
@pytest.mark.parametrize("server_limit", ["2", "2000"])
def test_pages_give_everything_once(limit: int, server_limit: str) -> None:
    rig = Rig(properties={"max.request.partition.size.limit": server_limit})

    async def run() -> None:
        client = await with_topics(rig)
        for names in ((), ("c", "a", "b", "a")):
            found, cursor, pages = [], None, 0
            while pages == 0 or cursor is not None:
                response = await describe(client, *names, limit=limit, cursor=cursor)
                assert len(listed(response)) <= min(limit, int(server_limit))
                found += listed(response)
                cursor = response.next_cursor
                pages += 1
            assert found == ALL

    rig.run(run)


def test_what_is_told_of_a_partition() -> None:
    rig = Rig()

    async def run() -> None:
        client = await with_topics(rig)
        (topic,) = (await describe(client, "b")).topics
        assert topic.topic_id == rig.topic_id("b")
        assert topic.topic_authorized_operations == 3576
        (partition,) = topic.partitions
        assert (partition.leader_id, partition.leader_epoch) == (1, 0)
        assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1], [1], [])
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])

    rig.run(run)


def test_unknown_topics_and_limits_that_make_no_sense() -> None:
    rig = Rig()

    async def run() -> None:
        client = await with_topics(rig)
        response = await describe(client, "nope", "a/b", "b")
        assert [(topic.name, ErrorCode(topic.error_code).name) for topic in response.topics] == [
            ("a/b", "INVALID_TOPIC_EXCEPTION"),
            ("b", "NONE"),
            ("nope", "UNKNOWN_TOPIC_OR_PARTITION"),
        ]
        for limit in (0, -1):
            assert listed(await describe(client, limit=limit)) == [("a", 0)]

    rig.run(run)


@pytest.mark.parametrize(
    ("names", "cursor"), [(("a", "b"), ("a", -1)), (("a", "b"), ("aa", 0)), (("a",), ("z", 0)), ((), ("a", -1))]
)
def test_a_cursor_that_points_nowhere(names: tuple[str, ...], cursor: tuple[str, int]) -> None:
    rig = Rig()

    async def run() -> None:
        client = await with_topics(rig)
        place = Cursor(topic_name=cursor[0], partition_index=cursor[1])
        response = await describe(client, *names, cursor=place)
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            (name, ErrorCode.INVALID_REQUEST) for name in names
        ]

    rig.run(run)


def test_a_topic_that_vanished_between_two_pages() -> None:
    rig = Rig()

    async def run() -> None:
        client = await with_topics(rig)
        response = await describe(client, cursor=Cursor(topic_name="aa", partition_index=5))
        assert listed(response) == [("b", 0), ("c", 0), ("c", 1)]
        response = await describe(client, "a", cursor=Cursor(topic_name="a", partition_index=99))
        assert listed(response) == []
        assert response.next_cursor is None

    rig.run(run)
