"""Brokers come, speak, fall silent and die, as the active controller sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.metadata.building import uuid
from tests.unit.server.metadata_machine import Machine, create_request

from odradek.ids import NO_NODE, NodeId
from odradek.metadata.image.topics import PartitionRegistration
from odradek.metadata.records import BeginTransactionRecord
from odradek.ports import Wire
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    RequestedPartitionData,
    RequestedTopicData,
)
from odradek.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from odradek.server.broker_watch import STALL_MS
from odradek.server.metadata_writer import MAX_RECORDS_PER_BATCH

SESSION_S = 9
TWO = NodeId(2)


class Watched:
    """Brokers 1 (of the controller's own process) and 2, which lead and follow the partition `t-0`."""

    def __init__(self, **properties: str) -> None:
        self.machine = Machine(**properties)
        self.machine.boot()

    def run(self, test: Callable[[], Awaitable[None]]) -> None:
        async def prepared() -> None:
            await self.machine.register(2)
            await self.machine.heartbeat(2)
            assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[2, 1])
            topic = CreatableTopic(
                name="t", num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=[]
            )
            await self.machine.controller.create_topics(CreateTopicsRequest(topics=[topic]))
            await test()

        self.machine.run(prepared())

    async def heartbeats_for(self, seconds: float, *brokers: int) -> None:
        end = self.machine.loop.time() + seconds
        while self.machine.loop.time() < end:
            for broker in brokers:
                await self.machine.heartbeat(broker)
            await asyncio.sleep(0.5)

    @property
    def partition(self) -> PartitionRegistration:
        return self.machine.quorum.image.topics.by_name["t"].partitions[0]

    def is_fenced(self, broker_id: int) -> bool:
        return self.machine.quorum.image.cluster.brokers[NodeId(broker_id)].fenced

    def heartbeat_of_two(self) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=2,
            broker_epoch=self.machine.quorum.image.cluster.brokers[TWO].broker_epoch,
            current_metadata_offset=0,
            want_fence=False,
            want_shut_down=False,
        )

    def lose_connection(self) -> None:
        """Of broker 2."""
        request = self.heartbeat_of_two()
        assert self.machine.controller.heartbeats_on(request, "somewhere")
        assert not self.machine.controller.heartbeats_on(request, "somewhere")
        self.machine.controller.connection_lost(request, "elsewhere")
        self.machine.controller.connection_lost(request, "somewhere")


def test_a_silent_broker_is_fenced_after_its_session_and_not_before() -> None:
    watched = Watched()

    async def story() -> None:
        await watched.heartbeats_for(SESSION_S - 0.6, 1)
        assert not watched.is_fenced(2)
        await watched.heartbeats_for(1.2, 1)
        assert watched.is_fenced(2)
        assert not watched.is_fenced(1)
        assert (watched.partition.leader, watched.partition.isr) == (1, (1,))
        assert not (await watched.machine.heartbeat(2)).is_fenced
        assert watched.partition.leader == 1

    watched.run(story)


def test_brokers_that_speak_are_not_fenced_and_cost_nothing() -> None:
    watched = Watched()

    async def story() -> None:
        at = watched.machine.quorum.next_offset
        await watched.heartbeats_for(60, 1, 2)
        assert watched.machine.quorum.next_offset == at

    watched.run(story)


def test_a_heartbeat_of_an_old_epoch_revives_nobody() -> None:
    watched = Watched()

    async def story() -> None:
        old = watched.machine.quorum.image.cluster.brokers[TWO].broker_epoch
        await watched.heartbeats_for(SESSION_S + 1, 1)
        await watched.machine.register(2)
        for _ in range(3):
            with pytest.raises(KafkaError) as refused:
                await watched.machine.heartbeat(2, broker_epoch=old)
            assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
        assert watched.is_fenced(2)

    watched.run(story)


def test_an_id_is_taken_while_its_broker_is_alive() -> None:
    watched = Watched()

    async def story() -> None:
        with pytest.raises(KafkaError) as refused:
            await watched.machine.register(2)
        assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        await watched.heartbeats_for(SESSION_S + 1, 1)
        before = watched.machine.quorum.image.cluster.brokers[TWO].broker_epoch
        assert await watched.machine.register(2) > before

    watched.run(story)


def test_an_id_is_free_once_its_broker_has_stopped_in_order() -> None:
    watched = Watched()

    async def story() -> None:
        await watched.machine.register(3)
        await watched.machine.heartbeat(3)
        assert not (await watched.machine.heartbeat(2, want_shut_down=True)).should_shut_down
        assert watched.partition.leader == 1
        assert not (await watched.machine.heartbeat(2, want_shut_down=True)).should_shut_down
        await watched.machine.heartbeat(3)
        assert (await watched.machine.heartbeat(2, want_shut_down=True)).should_shut_down
        assert watched.is_fenced(2)
        await watched.machine.register(2)

    watched.run(story)


def test_a_dead_process_is_fenced_at_once() -> None:
    watched = Watched()

    async def story() -> None:
        watched.lose_connection()
        await watched.heartbeats_for(1, 1)
        assert watched.is_fenced(2)
        assert watched.partition.leader == 1
        await watched.machine.register(2)

    watched.run(story)


@pytest.mark.parametrize("outlived_s", [0.001, 0.05, 3])
def test_a_process_whose_listener_outlives_its_connection_is_fenced_once_both_are_gone(outlived_s: float) -> None:
    """As it happens when a process is killed: its sockets are closed one by one."""
    watched = Watched()

    async def story() -> None:
        listening = await watched.machine.world.network.listen("localhost", 9200, _Silent)
        watched.lose_connection()
        await asyncio.sleep(outlived_s)
        assert not watched.is_fenced(2)
        listening.close()
        await watched.heartbeats_for(1, 1)
        assert watched.is_fenced(2)
        assert watched.partition.leader == 1

    watched.run(story)


def test_a_new_controller_looks_for_brokers_it_has_not_heard_of() -> None:
    watched = Watched()

    async def story() -> None:
        controller = watched.machine.controller
        controller.deactivate()
        controller.activate(watched.machine.quorum.epoch)
        await watched.heartbeats_for(1, 1)
        assert watched.is_fenced(2)
        assert not watched.is_fenced(1)
        await watched.machine.register(2)

    watched.run(story)


def test_a_new_controller_waits_for_brokers_that_are_there() -> None:
    watched = Watched()

    async def story() -> None:
        listening = await watched.machine.world.network.listen("localhost", 9200, _Silent)
        controller = watched.machine.controller
        controller.deactivate()
        controller.activate(watched.machine.quorum.epoch)
        await watched.heartbeats_for(3, 1)
        listening.close()
        assert not watched.is_fenced(2)
        await watched.machine.heartbeat(2)
        await watched.heartbeats_for(SESSION_S - 1, 1)
        assert not watched.is_fenced(2)

    watched.run(story)


@pytest.mark.parametrize(("accept", "free"), [("turns everybody away", True), ("serves", False)])
def test_an_id_is_free_when_its_last_place_is_the_newcomers(accept: str, free: bool) -> None:
    """All nodes were killed and started again: whom the new controller finds there is not whom it has on record."""
    watched = Watched()

    async def story() -> None:
        machine = watched.machine
        listening = await machine.world.network.listen("localhost", 9200, _Silent if not free else _TurningAway)
        machine.controller.deactivate()
        machine.controller.activate(machine.quorum.epoch)
        with pytest.raises(KafkaError):
            await machine.register(2)
        await asyncio.sleep(1)
        if free:
            await machine.register(2)
        else:
            with pytest.raises(KafkaError):
                await machine.register(2)
        listening.close()

    watched.run(story)


def test_a_broker_that_has_spoken_is_not_taken_for_its_successor() -> None:
    watched = Watched()

    async def story() -> None:
        listening = await watched.machine.world.network.listen("localhost", 9200, _TurningAway)
        for _ in range(3):
            with pytest.raises(KafkaError):
                await watched.machine.register(2)
            await asyncio.sleep(0.5)
        listening.close()

    watched.run(story)


def test_a_broker_that_only_lost_its_connection_keeps_its_session() -> None:
    watched = Watched()

    async def story() -> None:
        listening = await watched.machine.world.network.listen("localhost", 9200, _Silent)
        watched.lose_connection()
        await watched.heartbeats_for(SESSION_S - 1, 1)
        assert not watched.is_fenced(2)
        listening.close()

    watched.run(story)


def test_a_broker_that_speaks_again_is_not_looked_for_any_more() -> None:
    watched = Watched()

    async def story() -> None:
        looks: list[Wire] = []

        def accept(wire: Wire) -> _Silent:
            looks.append(wire)
            return _Silent(wire)

        listening = await watched.machine.world.network.listen("localhost", 9200, accept)
        watched.lose_connection()
        await asyncio.sleep(1)
        assert 3 < len(looks) < 12
        assert watched.machine.controller.heartbeats_on(watched.heartbeat_of_two(), "a new place")
        await asyncio.sleep(1)
        seen = len(looks)
        await asyncio.sleep(3)
        assert len(looks) == seen
        listening.close()

    watched.run(story)


class _Silent:
    def __init__(self, wire: Wire) -> None:
        self._room = memoryview(bytearray(16))

    def buffer(self) -> memoryview:
        return self._room

    def received(self, count: int) -> None: ...

    def drained(self) -> None: ...

    def lost(self, why: Exception | None) -> None: ...


class _TurningAway(_Silent):
    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        asyncio.get_running_loop().call_soon(wire.close)


def test_a_controller_that_stood_still_does_not_blame_brokers() -> None:
    watched = Watched()

    async def story() -> None:
        machine = watched.machine
        jump_ms = 20_000
        real = machine.clock.monotonic_ms
        await asyncio.sleep(1)
        machine.clock.monotonic_ms = lambda: real() + jump_ms  # type: ignore[method-assign]
        await asyncio.sleep(SESSION_S + STALL_MS / 1000)
        assert not watched.is_fenced(2)
        await asyncio.sleep(SESSION_S)
        assert watched.is_fenced(2)

    watched.run(story)


def test_a_full_disk_delays_fencing_and_does_not_prevent_it() -> None:
    watched = Watched()

    async def story() -> None:
        device = watched.machine.device
        device.capacity = device.used
        await watched.heartbeats_for(SESSION_S + 3, 1)
        assert not watched.is_fenced(2)
        device.capacity = 1 << 40
        await watched.heartbeats_for(3, 1)
        assert watched.is_fenced(2)

    watched.run(story)


def test_nothing_is_decided_without_leadership() -> None:
    watched = Watched()

    async def story() -> None:
        controller = watched.machine.controller
        asked = asyncio.ensure_future(controller.create_topics(create_request("u")))
        await asyncio.sleep(0)
        waiting = asyncio.ensure_future(controller.create_topics(create_request("v")))
        await asyncio.sleep(0)
        controller.deactivate()
        with pytest.raises(KafkaError) as refused:
            await waiting
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        assert (await asked).topics[0].error_code == 0
        await asyncio.sleep(SESSION_S * 2)
        assert not watched.is_fenced(2)

    watched.run(story)


def test_leaders_go_back_to_preferred_replicas_after_a_while() -> None:
    watched = Watched(leader_imbalance_check_interval_seconds="5")

    async def story() -> None:
        await watched.machine.heartbeat(2, want_fence=True)
        assert watched.partition.leader == 1
        await watched.machine.heartbeat(2)
        request = _isr_request(watched, [1, 2])
        assert (await watched.machine.controller.alter_partition(request, 2)).topics[0].partitions[0].error_code == 0
        assert watched.partition.leader == 1
        await watched.heartbeats_for(6, 1, 2)
        assert watched.partition.leader == 2

    watched.run(story)


def test_unclean_elections_come_by_themselves_where_they_are_allowed() -> None:
    watched = Watched(unclean_leader_election_interval_ms="5000", unclean_leader_election_enable="true")

    async def story() -> None:
        machine = watched.machine
        assert (await machine.controller.alter_partition(_isr_request(watched, [2]), 2)).topics[0].partitions[
            0
        ].error_code == 0
        await machine.heartbeat(1, want_fence=True)
        await machine.heartbeat(2, want_fence=True)
        assert watched.partition.leader == NO_NODE
        await machine.heartbeat(1)
        assert watched.partition.leader == 1

    watched.run(story)


def _isr_request(watched: Watched, isr: list[int]) -> AlterPartitionRequest:
    image, partition = watched.machine.quorum.image, watched.partition
    asked = RequestedPartitionData(
        partition_index=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr=isr,
    )
    return AlterPartitionRequest(
        broker_id=partition.leader,
        broker_epoch=image.cluster.brokers[partition.leader].broker_epoch,
        topics=[RequestedTopicData(topic_id=image.topics.by_name["t"].topic_id, partitions=[asked])],
    )


def test_what_does_not_fit_into_one_batch_is_a_transaction() -> None:
    machine = Machine()
    machine.boot()
    for number in range(3):
        machine.create(f"t{number}", partitions=9_000)
    seen: list[type] = []
    append = machine.quorum.append

    async def noting(batches, *, epoch=None):  # type: ignore[no-untyped-def]
        seen.extend(type(batch[0]) for batch in batches)
        await append(batches, epoch=epoch)

    machine.quorum.append = noting  # type: ignore[method-assign]
    machine.run(_fence_own(machine))
    assert sum(len(topic.partitions) for topic in machine.quorum.image.topics.by_name.values()) > MAX_RECORDS_PER_BATCH
    assert seen == [BeginTransactionRecord]
    assert machine.quorum.image.cluster.brokers[NodeId(1)].fenced
    assert not machine.quorum.interrupted_transaction
    machine.crash("power")
    machine.open()
    assert machine.quorum.image.cluster.brokers[NodeId(1)].fenced
    assert machine.quorum.image.topics.by_name["t2"].partitions[8_999].leader == NO_NODE
    assert uuid(300) in machine.quorum.image.cluster.brokers[NodeId(1)].log_dirs


async def _fence_own(machine: Machine) -> None:
    await machine.heartbeat(want_fence=True)
