"""Groups of the client library's consumers on a made-up network: members come, go, vanish and lose connections."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.simulation.test_client import Ports, play

from odradek.client import Client, Consumer, TopicPartition
from odradek.client.settings import Given
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.sim.cluster import BROKER, PORT, Cluster
from odradek.sim.entropy import SimulatedEntropy

RECORDS = 120
PARTITIONS = 3
STRATEGIES = ("range", "roundrobin", "cooperative-sticky")


class Group:
    """All members of a run, what they read, and who owned what in which generation."""

    def __init__(self, cluster: Cluster, strategy: str) -> None:
        self.cluster = cluster
        self.strategy = strategy
        self.read: list[int] = []
        self.owners: dict[tuple[int, TopicPartition], str] = {}
        self.doubly_owned: list[tuple[int, TopicPartition]] = []
        self.running: dict[str, asyncio.Task[None]] = {}
        self.rebalances = 0

    def join(self, name: str) -> None:
        self.running[name] = asyncio.ensure_future(self._consume(name))

    async def leave(self, name: str) -> None:
        """The orderly way: the consumer commits, leaves and is closed."""
        task = self.running.pop(name)
        assert not task.done(), task.exception()
        task.cancel()
        await asyncio.wait([task])

    async def _consume(self, name: str) -> None:
        ports = Ports(
            self.cluster.client_network(name), self.cluster.clock, SimulatedEntropy(random.Random(f"{name} entropy"))
        )
        settings: Given = {
            "bootstrap.servers": f"{BROKER}:{PORT}",
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": self.strategy,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
            "max.poll.interval.ms": 10_000,
            "request.timeout.ms": 3_000,
        }
        async with Consumer(ports, settings) as consumer:
            consumer.subscribe(["t"], on_assigned=lambda _: self._note(name, consumer))
            while True:
                records = await consumer.poll(500)
                self.read += [int(record.value or b"") for record in records]
                try:
                    if records:
                        await consumer.commit()
                except KafkaError:
                    continue  # Thrown out or rebalancing: somebody reads it again.

    def _note(self, name: str, consumer: Consumer) -> None:
        self.rebalances += 1
        member = consumer._member
        assert member is not None
        generation_id = member.membership().generation_id
        for partition in consumer.assignment:
            owner = self.owners.setdefault((generation_id, partition), name)
            if owner != name:
                self.doubly_owned.append((generation_id, partition))


async def produce(client: Client) -> None:
    async with client.producer() as producer:
        for number in range(RECORDS):
            await producer.submit("t", b"%d" % number, partition=number % PARTITIONS)
            await asyncio.sleep(0.1)


async def committed(client: Client) -> int:
    async with client.admin() as admin:
        offsets = await admin.group_offsets("g")
        return sum(held.offset for held in offsets.values() if not isinstance(held, KafkaError))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(1, 6))
def test_members_come_and_go_and_every_record_is_read(seed: int, strategy: str) -> None:
    async def test(cluster: Cluster, client: Client) -> None:
        draw = cluster.draw("group")
        group = Group(cluster, strategy)
        producing = asyncio.ensure_future(produce(client))
        group.join("m0")
        for step in range(1, 9):
            await asyncio.sleep(draw.random() * 4)
            if draw.random() < 0.4 and len(group.running) > 1:
                await group.leave(draw.choice(sorted(group.running)))
            else:
                group.join(f"m{step}")
            for wire in cluster.internet.open_wires():
                if draw.random() < 0.2:
                    wire.reset()
        await producing
        for _ in range(60):
            await asyncio.sleep(1)
            if await committed(client) == RECORDS and len(frozenset(group.read)) == RECORDS:
                break
        assert sorted(frozenset(group.read)) == list(range(RECORDS))
        assert await committed(client) == RECORDS
        assert group.doubly_owned == []
        assert group.rebalances > 3
        for name in sorted(group.running):
            await group.leave(name)

    play(seed, test)


def test_who_is_thrown_out_while_joining_owns_nothing_before_it_has_joined_again() -> None:
    """A commit is refused when all answers are here and no poll has looked at them yet."""

    async def test(cluster: Cluster, client: Client) -> None:
        ports = Ports(cluster.client_network("m"), cluster.clock, SimulatedEntropy(random.Random("m entropy")))
        settings: Given = {"bootstrap.servers": f"{BROKER}:{PORT}", "group.id": "g", "auto.offset.reset": "earliest"}
        async with Consumer(ports, settings) as consumer:
            generations: list[int] = []
            consumer.subscribe(
                ["t"], on_assigned=lambda _: generations.append(consumer.group_membership().generation_id)
            )
            while not consumer.assignment:
                await consumer.poll(100)
            member = consumer._member
            assert member is not None
            member.rejoin()
            await member.step()
            assert member._joining is not None
            await asyncio.wait([member._joining])
            committed_as = member.membership()
            member.note_commit_failure(KafkaError(ErrorCode.UNKNOWN_MEMBER_ID), committed_as)
            while len(generations) < 2:
                await consumer.poll(100)
            assert generations[1] > committed_as.generation_id
            assert len(consumer.assignment) == PARTITIONS

    play(1, test)


def test_a_coordinator_that_metadata_does_not_name_any_more_is_looked_for_again() -> None:
    """All brokers but one were away when a client asked; it would have tried the one it remembered for ever."""

    async def test(cluster: Cluster, client: Client) -> None:
        ports = Ports(cluster.client_network("m"), cluster.clock, SimulatedEntropy(random.Random("m entropy")))
        settings: Given = {"bootstrap.servers": f"{BROKER}:{PORT}", "group.id": "g", "default.api.timeout.ms": 2_000}
        async with Consumer(ports, settings) as consumer:
            consumer.subscribe(["t"])
            while not consumer.assignment:
                await consumer.poll(100)
            consumer.cluster.brokers = {}
            await consumer.commit({consumer.assignment[0]: 0})

    play(1, test)
