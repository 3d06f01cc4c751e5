"""Nodes of an earlier version beside those of this one: what they replay differently is brought together (ADR 14).

Up to the version before this one a ClearElrRecord raised no partition epoch, and passed over topics of its own delta.
One node of a made-up cluster does so, and does not heal it as this version does; then it is upgraded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from odradek.client import Client
from odradek.decisions import Decision, Ticket
from odradek.ids import NodeId, Offset
from odradek.metadata.controller.alter_partition import _Alteration
from odradek.metadata.image import Image
from odradek.metadata.image.topics import PartitionRegistration, TopicsDelta
from odradek.metadata.records import ClearElrRecord, PartitionChangeRecord
from odradek.protocol.codec import Message
from odradek.server.node import Node
from odradek.server.partitions.isr_changes import IsrChanges
from odradek.sim.client_process import Ports
from odradek.sim.entropy import SimulatedEntropy
from odradek.sim.history import History
from odradek.sim.loop import whose_turn
from odradek.sim.machine import Machine
from odradek.sim.quorum import QuorumCluster, Shape

SHAPE = Shape(combined=3)
ALL = {NodeId(1), NodeId(2), NodeId(3)}
PROPERTIES = {"min.insync.replicas": "2", "auto.leader.rebalance.enable": "false"}
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "1"}
NO_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "20971520"}


@pytest.fixture
def earlier(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The machines whose nodes are of the earlier version."""
    machines: set[str] = set()
    replay, counts, ask = TopicsDelta.replay_clear_elr, _Alteration._counts_differently, IsrChanges._ask_ahead

    def is_earlier() -> bool:
        life = whose_turn()
        return life is not None and life.machine in machines

    def replayed(delta: TopicsDelta, record: ClearElrRecord) -> None:
        if not is_earlier():
            replay(delta, record)
            return
        for topic_id, before in delta._base.by_id.items():
            if topic_id in delta._deleted or record.topic_name not in ("", before.name):
                continue
            topic = delta._topic(topic_id)
            for index in range(topic.partition_count()):
                topic.partitions[index] = replace(topic.partition(index), elr=(), last_known_elr=())

    monkeypatch.setattr(TopicsDelta, "replay_clear_elr", replayed)
    monkeypatch.setattr(_Alteration, "_counts_differently", lambda *given: not is_earlier() and counts(*given))
    monkeypatch.setattr(IsrChanges, "_ask_ahead", lambda *given: None if is_earlier() else ask(*given))
    return machines


def node_of(machine: Machine) -> Node:
    assert machine.node is not None
    return machine.node


def registration(machine: Machine) -> PartitionRegistration:
    return node_of(machine).rooms.image.topics.by_name["t"].partitions[0]


async def until(holds: Callable[[], bool], *, within_s: float) -> None:
    for _ in range(int(within_s * 10)):
        if holds():
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"it does not hold after {within_s} s")


async def leave_alone(cluster: QuorumCluster, leader: Machine, *more: Message) -> None:
    """That one leads, alone in sync, and `more` is decided with it; all of it is committed."""
    leader_id, controller = cluster.members[leader.name].node_id, cluster.leader()
    assert controller is not None

    def decide(image: Image, _at: Offset) -> Decision[Message, None]:
        topic = image.topics.by_name["t"]
        others: list[int] = sorted(ALL - {NodeId(leader_id)})
        shrunk = PartitionChangeRecord(
            partition_id=0, topic_id=topic.topic_id, leader=leader_id, isr=[leader_id], eligible_leader_replicas=others
        )
        return Decision((shrunk, *more), ((Ticket(0), None),), None)

    async def submit() -> None:
        await node_of(controller).rooms.controller._queue.submit(decide)

    before = registration(controller).leader_epoch
    await controller.in_life(submit())
    await until(lambda: all(registration(each).leader_epoch > before for each in cluster.machines.values()), within_s=5)


@pytest.mark.parametrize("properties", [SNAPSHOTS, NO_SNAPSHOTS], ids=["snapshots", "logs"])
@pytest.mark.parametrize("leads", ["earlier", "this"])
@pytest.mark.parametrize("controls", ["earlier", "this"])
def test_nodes_that_replay_a_cleared_elr_differently_agree_once_all_are_upgraded(
    controls: str, leads: str, properties: dict[str, str], earlier: set[str]
) -> None:
    cluster = QuorumCluster(1, History(()), shapes=(SHAPE,), properties=PROPERTIES | properties)
    ports = Ports(cluster.client_network("admin"), cluster.clock, SimulatedEntropy(cluster.draw("admin")))
    client = Client(ports, {"bootstrap.servers": ",".join(f"{host}:{port}" for host, port in cluster.brokers)})
    machines = list(cluster.machines.values())

    async def run() -> None:
        await asyncio.gather(*(machine.start() for machine in machines))
        async with client.admin() as admin:
            await admin.create_topic("t", partitions=1, replication_factor=3)
        await until(lambda: all("t" in node_of(each).rooms.image.topics.by_name for each in machines), within_s=10)
        active = cluster.leader()
        assert active is not None
        old = active if controls == "earlier" else next(each for each in machines if each is not active)
        new = next(each for each in machines if each is not old)
        earlier.add(old.name)
        leader = old if leads == "earlier" else new
        await leave_alone(cluster, leader, ClearElrRecord(topic_name="t"))
        assert registration(old).partition_epoch == registration(new).partition_epoch - 1
        await asyncio.sleep(20)
        await old.stop()
        earlier.clear()
        await old.start()
        await until(lambda: all(set(registration(each).isr) == ALL for each in machines), within_s=30)
        # Where it neither leads nor controls, its older snapshot harms nobody, and nobody hears of it. Then it leads.
        await leave_alone(cluster, old)
        await until(
            lambda: (
                all(registration(each) == registration(old) for each in machines) and set(registration(old).isr) == ALL
            ),
            within_s=30,
        )
        await asyncio.gather(*(machine.stop() for machine in machines))

    try:
        cluster.loop.run_until_complete(run())
    finally:
        cluster.abandon()
        cluster.loop.close()
    assert cluster.loop.failures == []
