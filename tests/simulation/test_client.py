"""The client library on a made-up network: the same code as on sockets, under cuts, stalls and crashes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from odradek.client import Client, TopicPartition
from odradek.client.consumer import ConsumerRecord
from odradek.client.settings import Given
from odradek.ports import Clock, Entropy, Network
from odradek.sim.cluster import BROKER, PORT, Cluster
from odradek.sim.entropy import SimulatedEntropy
from odradek.sim.history import History
from odradek.values import value

RECORDS = 200
PARTITIONS = 3
POLLS = 5


@value
class Ports:
    network: Network
    clock: Clock
    entropy: Entropy


def play(seed: int, test: Callable[[Cluster, Client], Awaitable[None]], settings: Given | None = None) -> None:
    """A node, a client on another machine, and a topic `t`."""
    cluster = Cluster(seed, History(durable_topics=()))
    ports = Ports(cluster.client_network("client"), cluster.clock, SimulatedEntropy(cluster.draw("client")))
    client = Client(ports, {"bootstrap.servers": f"{BROKER}:{PORT}", **(settings or {})})

    async def run() -> None:
        await cluster.start()
        async with client.admin() as admin:
            await admin.create_topic("t", partitions=PARTITIONS)
        await test(cluster, client)
        await cluster.stop()

    cluster.loop.run_until_complete(run())
    assert cluster.loop.failures == []


async def produce(client: Client, settings: Given) -> None:
    async with client.producer(settings) as producer:
        receipts = []
        for number in range(RECORDS):
            receipts.append(await producer.submit("t", b"%d" % number, partition=number % PARTITIONS))
            await asyncio.sleep(0.01)
        metadata = await asyncio.gather(*receipts)
    assert [each.partition for each in metadata] == [number % PARTITIONS for number in range(RECORDS)]


async def consume(client: Client) -> list[ConsumerRecord]:
    async with client.consumer({"enable.auto.commit": False, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition("t", index) for index in range(PARTITIONS)])
        records: list[ConsumerRecord] = []
        for _ in range(POLLS):
            records += await consumer.poll(1_000)
        return records


def assert_each_once_and_in_order(records: list[ConsumerRecord]) -> None:
    for index in range(PARTITIONS):
        read = [int(record.value or b"") for record in records if record.partition == index]
        assert read == list(range(index, RECORDS, PARTITIONS))


@pytest.mark.parametrize("seed", range(1, 21))
def test_cuts_and_stalls_neither_lose_nor_double_nor_reorder(seed: int) -> None:
    async def test(cluster: Cluster, client: Client) -> None:
        draw = cluster.draw("cuts")
        cuts = 0
        producing = asyncio.ensure_future(produce(client, {"linger.ms": 3, "batch.size": 200}))
        while not producing.done():
            await asyncio.sleep(draw.random() * 0.3)
            if draw.random() < 0.1:
                cluster.internet.stall(draw.randrange(100_000, 1_000_000))
            for wire in cluster.internet.open_wires():
                if draw.random() < 0.4:
                    cuts += 1
                    wire.reset()
        await producing
        assert cuts
        assert_each_once_and_in_order(await consume(client))

    play(seed, test)


@pytest.mark.parametrize("seed", range(1, 11))
def test_a_broker_that_is_killed_keeps_what_it_acknowledged(seed: int) -> None:
    """One batch in flight: of several, a restarted broker remembers only the last, as Kafka's snapshots have it."""

    async def test(cluster: Cluster, client: Client) -> None:
        draw = cluster.draw("kills")
        producing = asyncio.ensure_future(produce(client, {"max.in.flight.requests.per.connection": 1}))
        for _ in range(3):
            await asyncio.sleep(draw.random() * 0.6)
            await cluster.crash("process")
            await asyncio.sleep(draw.random() * 2)
            await cluster.start()
        await producing
        assert_each_once_and_in_order(await consume(client))

    play(seed, test)


def test_a_stalled_network_times_requests_out_and_they_are_sent_again() -> None:
    async def test(cluster: Cluster, client: Client) -> None:
        producing = asyncio.ensure_future(produce(client, {"request.timeout.ms": 300}))
        for _ in range(4):
            await asyncio.sleep(0.5)
            cluster.internet.stall(1_000_000)
        await producing
        assert_each_once_and_in_order(await consume(client))

    play(3, test)


def test_a_consumer_that_finds_nobody_for_long_goes_on_when_somebody_is_there() -> None:
    """A poll returns nothing then; that a coordinator was away for longer than one call may take ends no consumer."""

    async def test(cluster: Cluster, client: Client) -> None:
        await produce(client, {})
        settings: Given = {"group.id": "g", "auto.offset.reset": "earliest", "default.api.timeout.ms": 1_000}
        async with client.consumer({**settings, "request.timeout.ms": 500}) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            await cluster.crash("process")
            for _ in range(6):
                assert await consumer.poll(1_000) == []
            await cluster.start()
            records: list[ConsumerRecord] = []
            for _ in range(POLLS):
                records += await consumer.poll(2_000)
            assert [record.offset for record in records] == list(range(len(records)))
            assert records

    play(1, test)
