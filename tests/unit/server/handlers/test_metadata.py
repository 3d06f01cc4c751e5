"""Metadata in every version, as a client on a real connection sees it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.metadata.building import broker, cluster, replayed, uuid
from tests.unit.server.rig import Client, Rig

from odradek.ids import ZERO_UUID, Uuid
from odradek.metadata.image import Image
from odradek.metadata.image.topics import new_partition, partition_record
from odradek.metadata.records import BrokerRegistrationChangeRecord, PartitionChangeRecord, TopicRecord
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from odradek.server.handlers.listener_view import ListenerView
from odradek.server.handlers.metadata_cache import describe_topic

VERSIONS = range(14)
NEWEST = 13

Test = Callable[[Rig, Client], Coroutine[Any, Any, None]]


def on_a_node(test: Test, **properties: str) -> None:
    rig = Rig(properties={key.replace("_", "."): text for key, text in properties.items()})

    async def run() -> None:
        await test(rig, rig.connect())

    rig.run(run)


def asking_for(*names: str | Uuid | None, **more: Any) -> MetadataRequest:
    topics = [
        MetadataRequestTopic(name=None, topic_id=name) if isinstance(name, bytes) else MetadataRequestTopic(name=name)
        for name in names
    ]
    return MetadataRequest(topics=topics, **more)


def errors(response: MetadataResponse) -> list[tuple[str | None, str]]:
    return [(topic.name, ErrorCode(topic.error_code).name) for topic in response.topics]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_and_its_leader(version: int) -> None:
    async def test(rig: Rig, client: Client) -> None:
        await rig.create_topic("t", 2)
        response = await client.ask(asking_for("t", "t"), version)
        (broker,) = response.brokers
        assert (broker.node_id, broker.host, broker.port) == (1, "node", 9092)
        (topic,) = response.topics
        assert (topic.name, topic.error_code) == ("t", 0)
        assert [(part.partition_index, part.leader_id, part.error_code) for part in topic.partitions] == [
            (0, 1, 0),
            (1, 1, 0),
        ]
        assert topic.partitions[0].replica_nodes == topic.partitions[0].isr_nodes == [1]
        assert topic.topic_id == (rig.topic_id("t") if version >= 10 else ZERO_UUID)
        if version >= 1:
            assert response.controller_id == 1
        if version >= 2:
            assert response.cluster_id == rig.node.rooms.cluster_id

    on_a_node(test)


@pytest.mark.parametrize("version", VERSIONS)
def test_all_topics_and_none(version: int) -> None:
    async def test(rig: Rig, client: Client) -> None:
        await rig.create_topic("a")
        await rig.create_topic("b")
        nothing = await client.ask(MetadataRequest(topics=[]), version)
        # In version 0 an empty list means all.
        assert [topic.name for topic in nothing.topics] == (["a", "b"] if version == 0 else [])
        if version >= 1:
            everything = await client.ask(MetadataRequest(topics=None), version)
            assert [topic.name for topic in everything.topics] == ["a", "b"]

    on_a_node(test)


def test_topics_by_id() -> None:
    async def test(rig: Rig, client: Client) -> None:
        await rig.create_topic("t")
        known, unknown = rig.topic_id("t"), uuid(12345)
        for version in (12, 13):
            response = await client.ask(asking_for(known, unknown), version)
            assert errors(response) == [("t", "NONE"), (None, "UNKNOWN_TOPIC_ID")]
            assert [topic.topic_id for topic in response.topics] == [known, unknown]

    on_a_node(test)


@pytest.mark.parametrize(("version", "topic"), [(10, uuid(1)), (11, uuid(1)), (10, None), (12, None), (13, None)])
def test_questions_that_name_nothing(version: int, topic: Uuid | None) -> None:
    async def test(rig: Rig, client: Client) -> None:
        response = await client.ask(asking_for(topic), version)
        assert errors(response) == [("", "INVALID_REQUEST")]
        assert response.error_code == (ErrorCode.INVALID_REQUEST if version == 13 else 0)

    on_a_node(test)


def test_what_is_unknown_is_created_with_the_defaults() -> None:
    async def test(rig: Rig, client: Client) -> None:
        for version in (0, 3, NEWEST):
            (topic,) = (await client.ask(asking_for(f"new-{version}"), version)).topics
            assert (topic.error_code, len(topic.partitions)) == (0, 3)
        assert len(rig.node.rooms.image.topics.by_name) == 3

    on_a_node(test, num_partitions="3")


def test_what_may_not_be_created() -> None:
    async def test(rig: Rig, client: Client) -> None:
        forbidden = await client.ask(asking_for("t", "a/b", allow_auto_topic_creation=False), NEWEST)
        assert errors(forbidden) == [("t", "UNKNOWN_TOPIC_OR_PARTITION"), ("a/b", "INVALID_TOPIC_EXCEPTION")]
        invalid = await client.ask(asking_for("..", "", "x" * 250, "__consumer_offsets"), NEWEST)
        assert [code for _, code in errors(invalid)] == ["INVALID_TOPIC_EXCEPTION"] * 3 + ["UNKNOWN_TOPIC_OR_PARTITION"]
        assert invalid.topics[3].is_internal
        assert not rig.node.rooms.image.topics.by_name

    on_a_node(test)


def test_auto_creation_can_be_turned_off() -> None:
    async def test(rig: Rig, client: Client) -> None:
        assert errors(await client.ask(asking_for("t"), NEWEST)) == [("t", "UNKNOWN_TOPIC_OR_PARTITION")]

    on_a_node(test, auto_create_topics_enable="false")


def test_a_default_that_cannot_be_leaves_the_topic_unknown() -> None:
    async def test(rig: Rig, client: Client) -> None:
        assert errors(await client.ask(asking_for("t"), NEWEST)) == [("t", "UNKNOWN_TOPIC_OR_PARTITION")]

    on_a_node(test, default_replication_factor="3")


def test_two_clients_want_the_same_new_topic() -> None:
    async def test(rig: Rig, client: Client) -> None:
        other = rig.connect()
        request = asking_for("t")
        first, second = client.send(request, NEWEST), other.send(request, NEWEST)
        answers = [await client.answer(first, request, NEWEST), await other.answer(second, request, NEWEST)]
        assert [errors(answer) for answer in answers] == [[("t", "NONE")]] * 2
        assert answers[0].topics[0].topic_id == answers[1].topics[0].topic_id

    on_a_node(test)


def test_authorized_operations() -> None:
    async def test(rig: Rig, client: Client) -> None:
        await rig.create_topic("t")
        for version in range(8, 14):
            plain = await client.ask(asking_for("t"), version)
            assert plain.topics[0].topic_authorized_operations == plain.cluster_authorized_operations == -(1 << 31)
            asked = await client.ask(
                asking_for(
                    "t",
                    include_topic_authorized_operations=True,
                    include_cluster_authorized_operations=version <= 10,
                ),
                version,
            )
            assert asked.topics[0].topic_authorized_operations == 3576
            assert asked.cluster_authorized_operations == (8096 if version <= 10 else -(1 << 31))

    on_a_node(test)


# What other brokers would do to the answer, without other brokers.


def described(image: Image, version: int, listener_name: str = "PLAINTEXT") -> MetadataResponseTopic:
    return describe_topic(ListenerView(image.cluster, listener_name), image.topics.by_name["t"], version)


def replicated(leader: int) -> Image:
    image = cluster(broker(1), broker(2))
    brokers = tuple(image.cluster.brokers)
    partition = new_partition(brokers, directories=(uuid(1001), uuid(2001)), isr=brokers)
    image = replayed(image, [TopicRecord(name="t", topic_id=uuid(201)), partition_record(uuid(201), 0, partition)])
    return replayed(image, [PartitionChangeRecord(partition_id=0, topic_id=uuid(201), leader=leader)])


def test_a_fenced_follower_is_offline() -> None:
    image = replayed(replicated(1), [BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=2, fenced=1)])
    (partition,) = described(image, NEWEST).partitions
    assert (partition.error_code, partition.replica_nodes, partition.offline_replicas) == (0, [1, 2], [2])
    (partition,) = described(image, 0).partitions
    assert partition.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])


def test_no_leader() -> None:
    (partition,) = described(replicated(-1), NEWEST).partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)])
def test_a_listener_that_the_leader_lacks(version: int, code: ErrorCode) -> None:
    (partition,) = described(replicated(1), version, "INTERNAL").partitions
    assert (partition.error_code, partition.leader_id) == (code, -1)


def test_a_lost_directory_makes_a_replica_offline() -> None:
    lost = PartitionChangeRecord(partition_id=0, topic_id=uuid(201), directories=[uuid(1001), uuid(2)])
    (partition,) = described(replayed(replicated(1), [lost]), NEWEST).partitions
    assert partition.offline_replicas == [2]
