"""Brokers come, speak, fall silent and die, as the active controller sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.metadata.building import uuid
from tests.unit.server.metadata_machine import Machine, create_request
from tests.unit.server.rig import Idle

from odradek.ids import NO_NODE, NodeId
from odradek.metadata.image.cluster import Endpoint
from odradek.metadata.image.configs import ALL_BROKERS, BROKER_RESOURCE, ConfigsImage
from odradek.metadata.image.topics import PartitionRegistration
from odradek.metadata.records import BeginTransactionRecord
from odradek.ports import Listening, Wire, WireOwner
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    RequestedPartitionData,
    RequestedTopicData,
)
from odradek.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from odradek.server.configs.dynamic import apply_broker_configs
from odradek.server.controller.broker_watch import STALL_MS
from odradek.server.controller.decision_queue import DecisionQueue
from odradek.server.quorum.writer import MAX_RECORDS_PER_BATCH
from odradek.values import replace

SESSION_S = 9
TWO = NodeId(2)


class Watched:
    """Brokers 1 (of the controller's own process) and 2, which lead and follow the partition `t-0`."""

    def __init__(self, **properties: str) -> None:
        self.machine = Machine(**properties)
        self.machine.boot()

    def run(self, test: Callable[[], Awaitable[None]], *, is_reached: bool = True) -> None:
        """Broker 2 listens, and the controller can see that, unless it cannot be reached from the beginning."""

        async def prepared() -> None:
            if is_reached:
                self.listening = await self.listen(Idle)
            await self.machine.register(2)
            await self.machine.heartbeat(2)
            assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[2, 1])
            topic = CreatableTopic(
                name="t", num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=[]
            )
            await self.machine.controller.create_topics(CreateTopicsRequest(topics=[topic]))
            await asyncio.sleep(0.1)
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

    async def listen(self, accept: Callable[[Wire], WireOwner]) -> Listening:
        """Where broker 2 is said to be."""
        return await self.machine.world.network.listen("localhost", 9200, accept)

    def lose_connection(self, *, closed_by_peer: bool = True) -> None:
        """Of broker 2."""
        request = self.heartbeat_of_two()
        assert self.machine.controller.heartbeats_on(request, "somewhere")
        assert not self.machine.controller.heartbeats_on(request, "somewhere")
        self.machine.controller.connection_lost(request, "elsewhere", closed_by_peer=True)
        self.machine.controller.connection_lost(request, "somewhere", closed_by_peer=closed_by_peer)

    def change_controller(self) -> None:
        """What the last one knew and did not put on record is gone."""
        self.machine.controller.deactivate()
        self.machine.controller.activate(self.machine.quorum.epoch)


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


def test_a_process_that_has_ended_is_fenced_at_once() -> None:
    watched = Watched()

    async def story() -> None:
        watched.listening.close()
        watched.lose_connection()
        await watched.heartbeats_for(0.1, 1)
        assert watched.is_fenced(2)
        assert watched.partition.leader == 1
        await watched.machine.register(2)

    watched.run(story)


@pytest.mark.parametrize("outlived_s", [0.001, 0.05, 3])
def test_a_process_whose_listener_outlives_its_connection_is_fenced_once_both_are_gone(outlived_s: float) -> None:
    """As it happens when a process is killed: its sockets are closed one by one."""
    watched = Watched()

    async def story() -> None:
        watched.lose_connection()
        await asyncio.sleep(outlived_s)
        assert not watched.is_fenced(2)
        watched.listening.close()
        await watched.heartbeats_for(1, 1)
        assert watched.is_fenced(2)
        assert watched.partition.leader == 1

    watched.run(story)


async def _never_reached(watched: Watched) -> None:
    watched.lose_connection()


async def _refuses_and_is_connected(watched: Watched) -> None:
    assert watched.machine.controller.heartbeats_on(watched.heartbeat_of_two(), "somewhere")
    watched.listening.close()


async def _was_reset(watched: Watched) -> None:
    watched.listening.close()
    watched.lose_connection(closed_by_peer=False)


async def _was_silent_for_half_a_session(watched: Watched) -> None:
    watched.listening.close()
    await watched.heartbeats_for(SESSION_S / 2 + 0.1, 1)
    watched.lose_connection()


async def _still_listens(watched: Watched) -> None:
    watched.lose_connection()


async def _spoke_with_another_controller(watched: Watched) -> None:
    request = watched.heartbeat_of_two()
    watched.machine.controller.deactivate()
    assert not watched.machine.controller.heartbeats_on(request, "somewhere")
    watched.machine.controller.activate(watched.machine.quorum.epoch)
    watched.listening.close()
    watched.machine.controller.connection_lost(request, "somewhere", closed_by_peer=True)


@pytest.mark.parametrize(
    "happens",
    [
        _never_reached,
        _refuses_and_is_connected,
        _was_reset,
        _was_silent_for_half_a_session,
        _still_listens,
        _spoke_with_another_controller,
    ],
    ids=lambda happens: str(happens.__name__.strip("_")),
)
def test_without_proof_a_broker_has_its_session(happens: Callable[[Watched], Awaitable[None]]) -> None:
    watched = Watched()

    async def story() -> None:
        began = watched.machine.loop.time()
        await happens(watched)
        left_s = SESSION_S - (watched.machine.loop.time() - began)
        await watched.heartbeats_for(left_s - 0.6, 1)
        assert not watched.is_fenced(2)
        await watched.heartbeats_for(1.2, 1)
        assert watched.is_fenced(2)

    watched.run(story, is_reached=happens is not _never_reached)


def test_with_early_fencing_switched_off_a_dead_process_has_its_session() -> None:
    watched = Watched(odradek_early_fencing_enable="false")

    async def story() -> None:
        watched.listening.close()
        watched.lose_connection()
        with pytest.raises(KafkaError):
            await watched.machine.register(2, **_successor(watched))
        await watched.heartbeats_for(SESSION_S - 0.6, 1)
        assert not watched.is_fenced(2)
        await watched.heartbeats_for(1.2, 1)
        assert watched.is_fenced(2)
        watched.change_controller()
        with pytest.raises(KafkaError):
            await watched.machine.register(1)

    watched.run(story)


def test_the_switch_counts_as_soon_as_it_is_turned() -> None:
    watched = Watched(odradek_early_fencing_enable="false")

    async def story() -> None:
        apply_broker_configs(
            watched.machine.config,
            ConfigsImage({(BROKER_RESOURCE, ALL_BROKERS): {"odradek.early.fencing.enable": "true"}}),
        )
        watched.machine.controller.learn(watched.machine.quorum.image)
        await asyncio.sleep(0.1)
        watched.listening.close()
        watched.lose_connection()
        await watched.heartbeats_for(0.1, 1)
        assert watched.is_fenced(2)

    watched.run(story)


@pytest.mark.parametrize("is_reached", [True, False])
def test_a_live_broker_that_cannot_be_reached_keeps_leading_whoever_becomes_controller(is_reached: bool) -> None:
    """Its address refuses the controller from the beginning, or from some time on; its heartbeats come all the same."""
    watched = Watched()

    async def story() -> None:
        if is_reached:
            watched.listening.close()
        for number in range(3):
            watched.change_controller()
            await watched.heartbeats_for(2, 1)
            assert watched.machine.controller.heartbeats_on(watched.heartbeat_of_two(), number)
            await watched.heartbeats_for(3, 1, 2)
            assert (watched.partition.leader, watched.partition.leader_epoch) == (2, 0)
            assert not watched.is_fenced(2)

    watched.run(story, is_reached=is_reached)


def test_a_listener_that_was_never_reached_does_not_stand_in_the_way_of_one_that_was() -> None:
    watched = Watched()

    async def story() -> None:
        machine = watched.machine
        both = (Endpoint("PLAINTEXT", "localhost", 9300, 0), Endpoint("INSIDE", "localhost", 9301, 0))
        listening = await machine.world.network.listen("localhost", 9301, Idle)
        await machine.register(3, broker_endpoints=both)
        await machine.heartbeat(3)
        await asyncio.sleep(0.1)
        epoch = machine.quorum.image.cluster.brokers[NodeId(3)].broker_epoch
        request = replace(watched.heartbeat_of_two(), broker_id=3, broker_epoch=epoch)
        assert machine.controller.heartbeats_on(request, "somewhere")
        machine.controller.connection_lost(request, "somewhere", closed_by_peer=True)
        await watched.heartbeats_for(0.5, 1, 2)
        assert not watched.is_fenced(3)
        listening.close()
        await watched.heartbeats_for(0.6, 1, 2)
        assert watched.is_fenced(3)

    watched.run(story)


def test_a_listener_is_tried_until_it_is_reached_and_forgotten_with_its_broker() -> None:
    watched = Watched()

    async def story() -> None:
        await asyncio.sleep(2)
        taken: list[Wire] = []

        def accept(wire: Wire) -> Idle:
            taken.append(wire)
            return Idle(wire)

        listening = await watched.listen(accept)
        await watched.heartbeats_for(5, 1, 2)
        assert len(taken) == 1
        await watched.machine.heartbeat(2, want_fence=True)
        await watched.machine.heartbeat(2)
        await watched.heartbeats_for(5, 1, 2)
        assert len(taken) == 1
        listening.close()
        watched.lose_connection()
        await watched.heartbeats_for(1, 1)
        assert watched.is_fenced(2)
        await watched.machine.register(2)
        await watched.machine.heartbeat(2)
        watched.lose_connection()
        await watched.heartbeats_for(1, 1)
        assert not watched.is_fenced(2), "what its last life was reached at does not count for this one"

    watched.run(story, is_reached=False)


def test_a_heartbeat_that_comes_while_the_broker_is_looked_for_wins() -> None:
    watched = Watched()

    async def story() -> None:
        watched.listening.close()
        watched.lose_connection()
        await watched.machine.heartbeat(2)
        await watched.heartbeats_for(SESSION_S - 0.6, 1)
        assert not watched.is_fenced(2)

    watched.run(story)


def test_a_heartbeat_that_comes_before_the_decision_is_written_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look has found the broker dead already, and its fencing waits in the queue."""
    watched = Watched()

    async def story() -> None:
        submit = DecisionQueue.submit
        held: list[int] = []

        def late(self: DecisionQueue, decide: Any) -> Any:
            if not held:
                held.append(1)
                request = watched.heartbeat_of_two()
                now_ms = watched.machine.clock.monotonic_ms()
                watched.machine.controller._sessions.heard(TWO, request.broker_epoch, now_ms=now_ms)
            return submit(self, decide)

        monkeypatch.setattr(DecisionQueue, "submit", late)
        watched.listening.close()
        watched.lose_connection()
        await asyncio.sleep(1)
        assert held
        assert not watched.is_fenced(2)
        with pytest.raises(KafkaError):
            await watched.machine.register(2)

    watched.run(story)


def _register_as_one_process(watched: Watched) -> Awaitable[object]:
    """Broker 2 is in one process with controller 2."""
    machine = watched.machine
    incarnation_id = machine.quorum.image.cluster.brokers[TWO].incarnation_id
    described = replace(machine.description(2), incarnation_id=incarnation_id)
    return machine.controller.register_controller(described.as_controller())


def test_the_broker_of_a_controller_that_died_is_fenced_by_its_successor_at_once() -> None:
    watched = Watched()

    async def story() -> None:
        await _register_as_one_process(watched)
        watched.machine.controller.deactivate()
        watched.machine.controller.process_ended(TWO)
        watched.listening.close()
        await asyncio.sleep(0.5)
        watched.machine.controller.activate(watched.machine.quorum.epoch)
        await watched.heartbeats_for(0.1, 1)
        assert watched.is_fenced(2)
        assert watched.partition.leader == 1

    watched.run(story)


@pytest.mark.parametrize("lacks", ["one process", "time", "refusal", "silence"])
def test_the_end_of_a_controller_alone_is_no_end_of_a_broker(lacks: str) -> None:
    watched = Watched()

    async def story() -> None:
        if lacks != "one process":
            await _register_as_one_process(watched)
        watched.machine.controller.deactivate()
        watched.machine.controller.process_ended(TWO)
        if lacks != "refusal":
            watched.listening.close()
        await asyncio.sleep(SESSION_S / 2 + 0.1 if lacks == "time" else 0.5)
        watched.machine.controller.activate(watched.machine.quorum.epoch)
        if lacks == "silence":
            await watched.machine.heartbeat(2)
        await watched.heartbeats_for(SESSION_S - 1, 1)
        assert not watched.is_fenced(2)

    watched.run(story)


def _successor(watched: Watched) -> dict[str, Any]:
    """What a process tells that holds the directories of broker 2's last life."""
    return {"previous_broker_epoch": watched.machine.quorum.image.cluster.brokers[TWO].broker_epoch}


@pytest.mark.parametrize(
    ("told", "is_taken_in"),
    [
        ({}, True),
        ({"previous_broker_epoch": -1}, False),
        ({"previous_broker_epoch": 1}, False),
        ({"log_dirs": (uuid(777),)}, False),
    ],
)
def test_an_id_is_free_for_who_holds_the_directories_of_its_last_life(told: dict[str, Any], is_taken_in: bool) -> None:
    """All nodes were killed and started again: nobody can have noticed the end of the brokers' last lives."""
    watched = Watched()

    async def story() -> None:
        watched.change_controller()
        claim = _successor(watched) | told
        if is_taken_in:
            await watched.machine.register(2, **claim)
            assert watched.partition.leader == 1
        else:
            with pytest.raises(KafkaError):
                await watched.machine.register(2, **claim)
            assert watched.partition.leader == 2

    watched.run(story)


def test_an_id_is_taken_while_its_broker_is_connected_whatever_the_newcomer_holds() -> None:
    watched = Watched()

    async def story() -> None:
        assert watched.machine.controller.heartbeats_on(watched.heartbeat_of_two(), "somewhere")
        with pytest.raises(KafkaError):
            await watched.machine.register(2, **_successor(watched))
        watched.machine.controller.connection_lost(watched.heartbeat_of_two(), "somewhere", closed_by_peer=False)
        await watched.machine.register(2, **_successor(watched))

    watched.run(story)


def test_a_process_without_the_registered_epoch_does_not_stand_in_for_the_broker() -> None:
    watched = Watched()

    async def story() -> None:
        old = replace(watched.heartbeat_of_two(), broker_epoch=1)
        assert not watched.machine.controller.heartbeats_on(old, "a zombie's")
        watched.listening.close()
        watched.lose_connection()
        await watched.heartbeats_for(0.1, 1)
        assert watched.is_fenced(2)

    watched.run(story)


def test_a_broker_that_speaks_again_is_not_looked_for_any_more() -> None:
    watched = Watched()

    async def story() -> None:
        looks: list[Wire] = []

        def accept(wire: Wire) -> Idle:
            looks.append(wire)
            return Idle(wire)

        watched.listening.close()
        listening = await watched.listen(accept)
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


@pytest.mark.parametrize("is_lost_before", [True, False])
def test_what_a_controller_that_stood_still_finds_closed_is_no_proof(is_lost_before: bool) -> None:
    """Brokers that live have given it up meanwhile, and one whose address refuses this controller may be among them."""
    watched = Watched()

    async def story() -> None:
        machine = watched.machine
        request = watched.heartbeat_of_two()
        assert machine.controller.heartbeats_on(request, "somewhere")
        if is_lost_before:
            machine.controller.connection_lost(request, "somewhere", closed_by_peer=True)
        real = machine.clock.monotonic_ms
        machine.clock.monotonic_ms = lambda: real() + 20_000  # type: ignore[method-assign]
        await watched.heartbeats_for(SESSION_S + 0.5, 1)
        watched.listening.close()
        if not is_lost_before:
            machine.controller.connection_lost(request, "somewhere", closed_by_peer=True)
        await watched.heartbeats_for(2, 1)
        assert not watched.is_fenced(2)
        await watched.heartbeats_for(SESSION_S, 1)
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
