"""Creating, growing and deleting topics over the wire, up to partitions that are served."""

from __future__ import annotations

import pytest
from tests.unit.server.rig import Rig

from odradek.ids import ZERO_UUID
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

PORTS = [9092, 9093]


def topic(name: str, partitions: int = 1, replicas: int = 1) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, assignments=[], configs=[])


@pytest.mark.parametrize("version", range(2, 8))
@pytest.mark.parametrize("port", PORTS)
def test_a_topic_is_served_when_its_creation_is_answered(version: int, port: int) -> None:
    rig = Rig()

    async def run() -> None:
        request = CreateTopicsRequest(topics=[topic("t", 3), topic("u", 1, 2)])
        good, bad = (await rig.connect(port).ask(request, version)).topics
        assert (good.name, good.error_code, good.error_message) == ("t", 0, None)
        assert [rig.node.rooms.replicas.find("t", index) is not None for index in range(4)] == [True] * 3 + [False]
        assert (bad.name, bad.error_code) == ("u", ErrorCode.INVALID_REPLICATION_FACTOR)
        if version >= 5:
            assert (good.num_partitions, good.replication_factor) == (3, 1)
            assert {"retention.ms", "cleanup.policy"} < {config.name for config in good.configs}
        assert good.topic_id == (rig.topic_id("t") if version >= 7 else ZERO_UUID)

    rig.run(run)


def test_validate_only_creates_nothing() -> None:
    rig = Rig()

    async def run() -> None:
        request = CreateTopicsRequest(topics=[topic("t")], validate_only=True)
        (result,) = (await rig.connect().ask(request, 7)).topics
        assert (result.error_code, result.num_partitions) == (0, 1)
        assert rig.node.rooms.replicas.find("t", 0) is None

    rig.run(run)


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows(version: int) -> None:
    rig = Rig()

    async def run() -> None:
        await rig.create_topic("t", 2)
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name="t", count=4, assignments=None),
                CreatePartitionsTopic(name="nope", count=4, assignments=None),
            ],
            timeout_ms=1000,
            validate_only=False,
        )
        good, bad = (await rig.connect().ask(request, version)).results
        assert (good.error_code, good.error_message) == (0, None)
        assert rig.node.rooms.replicas.find("t", 3) is not None
        assert bad.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    rig.run(run)


@pytest.mark.parametrize("version", range(1, 7))
def test_a_topic_goes(version: int) -> None:
    rig = Rig()

    async def run() -> None:
        await rig.create_topic("t")
        await rig.create_topic("stays")
        if version < 6:
            request = DeleteTopicsRequest(topic_names=["t", "nope"], timeout_ms=1000)
        else:
            states = [
                DeleteTopicState(name=None, topic_id=rig.topic_id("t")),
                DeleteTopicState(name="nope", topic_id=ZERO_UUID),
            ]
            request = DeleteTopicsRequest(topics=states, timeout_ms=1000)
        bad, good = (await rig.connect().ask(request, version)).responses
        assert (bad.name, bad.error_code) == ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert (good.name, good.error_code) == ("t", 0)
        assert rig.node.rooms.replicas.find("t", 0) is None
        assert rig.node.rooms.replicas.find("stays", 0) is not None

    rig.run(run)


def test_a_full_disk_is_told_to_each_topic_and_nothing_changes() -> None:
    rig = Rig()

    async def run() -> None:
        client = rig.connect()
        await rig.create_topic("t")
        rig.device.capacity = rig.device.used
        created = await client.ask(CreateTopicsRequest(topics=[topic("a"), topic("b")]), 7)
        assert [each.error_code for each in created.topics] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
        deleted = await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 5)
        assert [each.error_code for each in deleted.responses] == [ErrorCode.KAFKA_STORAGE_ERROR]
        more = CreatePartitionsTopic(name="t", count=4, assignments=None)
        grown = await client.ask(CreatePartitionsRequest(topics=[more], timeout_ms=1, validate_only=False), 3)
        assert [each.error_code for each in grown.results] == [ErrorCode.KAFKA_STORAGE_ERROR]
        rig.device.capacity = 1 << 40
        assert list(rig.node.rooms.image.topics.by_name) == ["t"]
        assert (await client.ask(CreateTopicsRequest(topics=[topic("a")]), 7)).topics[0].error_code == 0

    rig.run(run)
