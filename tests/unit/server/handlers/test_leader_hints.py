"""Who writes to a node that does not lead is told who does and where (KIP-951)."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import pytest
from tests.unit.server.asking import produce as produce_one
from tests.unit.server.replica_rig import ALL, LEADER, PORT, ReplicaRig
from tests.unit.server.rig import Rig

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from odradek.protocol.records.batch import build_batch
from odradek.protocol.records.record import Record
from odradek.server.partitions.replicas import Replicas

Told: TypeAlias = tuple[list[tuple[int, int, int, int]], list[tuple[int, str, int, str | None]]]
"""Index, error, leader and epoch of each partition; node, host, port and rack of those who lead."""

VERSIONS = [9, 10, 12, 13]
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def told(response: ProduceResponse) -> Told:
    (topic,) = response.responses
    return (
        [
            (each.index, each.error_code, each.current_leader.leader_id, each.current_leader.leader_epoch)
            for each in topic.partition_responses
        ],
        [(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints],
    )


def expected(version: int, *indexes: int) -> Told:
    """Broker 2 leads."""
    leader = (2, 1) if version >= 10 else (-1, -1)
    endpoints: list[tuple[int, str, int, str | None]] = [(2, "host-2", PORT, "rack-2")] if version >= 10 else []
    return [(index, int(NOT_LEADER), *leader) for index in indexes], endpoints


async def produce(
    rig: ReplicaRig, broker: int, *indexes: int, version: int, acks: int, **batch: Any
) -> ProduceResponse:
    records = build_batch([Record(value=b"v")], timestamp=rig.brokers[broker].world.clock.now_ms(), **batch)
    parts = [PartitionProduceData(index=index, records=records) for index in indexes]
    topic = TopicProduceData(name="t", topic_id=rig.image.topics.by_name["t"].topic_id, partition_data=parts)
    request = ProduceRequest(acks=acks, timeout_ms=20_000, topic_data=[topic])
    response: ProduceResponse = await rig.request(broker, request, version)
    return response


@pytest.mark.parametrize("indexes", [(0,), (0, 1)])
@pytest.mark.parametrize("version", VERSIONS)
def test_while_it_waits_for_its_replicas_another_one_is_elected(version: int, indexes: tuple[int, ...]) -> None:
    rig = ReplicaRig(2)

    async def story() -> Told:
        await rig.create_topic("t", [[1, 2], [1, 2]])
        rig.brokers[2].fetchers.close()
        waiting = asyncio.ensure_future(produce(rig, 1, *indexes, version=version, acks=ALL))
        await rig.until(lambda: rig.ends("t", indexes[-1])[1][1] == 1)
        for index in indexes:
            await rig.elect("t", 2, [1, 2], index=index)
        return told(await waiting)

    assert rig.run(story) == expected(version, *indexes)


@pytest.mark.parametrize("acks", [LEADER, ALL])
@pytest.mark.parametrize("indexes", [(0,), (0, 1)])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_leader_whom_an_earlier_batch_did_not_reach(version: int, indexes: tuple[int, ...], acks: int) -> None:
    """It leads, but says it does not: the client takes nothing amiss, and sends what comes first."""

    rig = ReplicaRig(2)

    async def story() -> Told:
        await rig.create_topic("t", [[1, 2], [1, 2]])
        for index in indexes:
            await rig.elect("t", 2, [1, 2], index=index)
        later = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 5}
        return told(await produce(rig, 2, *indexes, version=version, acks=acks, **later))

    assert rig.run(story) == expected(version, *indexes)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_address_is_that_of_the_clients_own_listener(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ports = {"INSIDE": 9092, "OUTSIDE": 9094}
    listeners = [f"{name}://node:{port}" for name, port in ports.items()]
    rig = Rig(
        properties={
            "listeners": ",".join([*listeners, "CONTROLLER://node:9093"]),
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
        }
    )

    def refuse(*args: Any, **options: Any) -> None:
        raise KafkaError(NOT_LEADER)

    async def test() -> None:
        await rig.create_topic("t", 1)
        monkeypatch.setattr(Replicas, "append", refuse)
        request = produce_one("t", b"v", topic_id=rig.topic_id("t"), acks=1)
        for port in ports.values():
            (answer,), nodes = told(await rig.connect(port).ask(request, version))
            assert answer == (0, NOT_LEADER, *((1, 0) if version >= 10 else (-1, -1)))
            assert nodes == ([(1, "node", port, None)] if version >= 10 else [])
        counted = [served for name, _, served, _ in rig.node.rooms.listeners.served_requests() if name == "Produce"]
        assert counted == [2], "those of both listeners"

    rig.run(test)
