"""Whom the controllers cannot reach is no worse than others; whose process has ended is not waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.simulation.test_client import Ports

from odradek.client import Client
from odradek.ids import NodeId
from odradek.metadata.image import Image
from odradek.metadata.image.topics import PartitionRegistration
from odradek.sim.entropy import SimulatedEntropy
from odradek.sim.history import History, TakenForDead
from odradek.sim.machine import Machine
from odradek.sim.quorum import BROKER_PORT, QuorumCluster, Shape

SESSION_S = 4.0
COMBINED = Shape(combined=3)
APART = Shape(controllers=3, brokers=3)


class Story:
    """A cluster with three controllers and three brokers, and a topic with a partition that each of them leads."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.cluster = QuorumCluster(seed, History(()), shapes=(shape,))

    def play(self, test: Callable[[], Awaitable[None]]) -> None:
        cluster = self.cluster
        try:
            cluster.loop.run_until_complete(self._play(test))
            assert cluster.loop.failures == []
            alive = [each for each in cluster.history.events if isinstance(each, TakenForDead) and each.alive]
            assert alive == []
        finally:
            cluster.abandon()
            cluster.loop.close()

    async def _play(self, test: Callable[[], Awaitable[None]]) -> None:
        await self.cluster.start()
        ports = Ports(
            self.cluster.client_network("client"),
            self.cluster.clock,
            SimulatedEntropy(self.cluster.draw("client")),
        )
        servers = ",".join(self.cluster.addresses())
        async with Client(ports, {"bootstrap.servers": servers}).admin() as admin:
            await admin.create_topic("t", partitions=9, replication_factor=3)
        await asyncio.sleep(3)
        await test()

    async def active(self) -> Machine:
        """Who decides, once there is somebody."""
        while True:
            leader = self.cluster.leader()
            if leader is not None:
                return leader
            await asyncio.sleep(0.005)

    async def image(self) -> Image:
        leader = await self.active()
        assert leader.node is not None
        return leader.node.rooms.image

    async def partitions(self) -> list[PartitionRegistration]:
        return list((await self.image()).topics.by_name["t"].partitions)

    def broker(self, number: int) -> tuple[Machine, NodeId]:
        """One that is no controller, where there are such."""
        brokers = [member for member in self.cluster.members.values() if member.is_broker]
        return self.cluster.machines[brokers[number].name], NodeId(brokers[number].node_id)

    def refuse(self, broker: Machine) -> None:
        for member in self.cluster.members.values():
            if member.is_controller and member.name != broker.name:
                self.cluster.internet.refuse(member.name, broker.name, BROKER_PORT)

    async def without(self, broker_id: NodeId) -> float:
        """Seconds until nothing is led by that broker."""
        began = self.cluster.loop.time()
        while True:
            if all(each.leader != broker_id for each in await self.partitions()):
                return float(self.cluster.loop.time() - began)
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("reached_before", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_broker_that_refuses_controllers_leads_on_whoever_becomes_controller(seed: int, reached_before: bool) -> None:
    story = Story(APART, seed)
    broker, broker_id = story.broker(0)
    if not reached_before:
        story.refuse(broker)

    async def test() -> None:
        led = [each.leader == broker_id for each in await story.partitions()]
        assert any(led)
        before = await story.partitions()
        if reached_before:
            story.refuse(broker)
        for number in range(3):
            controller = await story.active()
            await controller.crash("process")
            await asyncio.sleep(0.2 if number else 8)
            await controller.start()
            for _ in range(100):
                assert [each.leader == broker_id for each in await story.partitions()] == led
                await asyncio.sleep(0.05)
        assert [each.leader_epoch for each in await story.partitions()] == [each.leader_epoch for each in before]

    story.play(test)


@pytest.mark.parametrize("seed", range(3))
def test_connections_that_the_network_resets_are_nobodys_death(seed: int) -> None:
    """A filter that is told to refuse whoever is on its list ends the connections that there are, too."""
    story = Story(APART, seed)
    broker, broker_id = story.broker(0)

    async def test() -> None:
        before = await story.partitions()
        story.refuse(broker)
        for _ in range(5):
            for wire in story.cluster.internet.open_wires():
                if broker.name in (wire.machine, wire.peer.machine):
                    wire.reset()
            await asyncio.sleep(2)
        image = await story.image()
        assert not image.cluster.brokers[broker_id].fenced
        assert [each.leader_epoch for each in await story.partitions()] == [each.leader_epoch for each in before]

    story.play(test)


@pytest.mark.parametrize("shape", [COMBINED, APART], ids=["combined", "apart"])
@pytest.mark.parametrize("seed", range(3))
def test_the_partitions_of_a_killed_broker_have_another_leader_at_once(seed: int, shape: Shape) -> None:
    story = Story(shape, seed)

    async def test() -> None:
        active = await story.active()
        number = next(number for number in range(3) if story.broker(number)[0] is not active)
        broker, broker_id = story.broker(number)
        await broker.crash("process")
        assert await story.without(broker_id) < 0.3

    story.play(test)


@pytest.mark.parametrize("seed", range(6))
def test_so_have_those_of_a_combined_node_that_was_the_active_controller(seed: int) -> None:
    story = Story(COMBINED, seed)

    async def test() -> None:
        active = await story.active()
        broker_id = NodeId(story.cluster.members[active.name].node_id)
        await active.crash("process")
        assert await story.without(broker_id) < 0.6

    story.play(test)


def test_a_broker_that_died_with_another_process_that_was_the_controller_has_its_session() -> None:
    """Nobody who is left has had a connection from it: that it refuses says nothing by itself."""
    story = Story(APART, 1)

    async def test() -> None:
        broker, broker_id = story.broker(0)
        await (await story.active()).crash("process")
        await broker.crash("process")
        assert SESSION_S - 0.5 < await story.without(broker_id) < SESSION_S + 1.5

    story.play(test)


def test_all_nodes_that_were_killed_and_started_again_serve_without_waiting_for_sessions() -> None:
    story = Story(COMBINED, 1)

    async def test() -> None:
        machines = list(story.cluster.machines.values())
        for machine in machines:
            await machine.crash("process")
        began = story.cluster.loop.time()
        starts: list[asyncio.Task[Any]] = [asyncio.ensure_future(machine.start()) for machine in machines]
        await asyncio.gather(*starts)
        assert story.cluster.loop.time() - began < 2.5

    story.play(test)
