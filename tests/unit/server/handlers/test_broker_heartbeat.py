"""What brokers and operators ask the active controller for, through its own listener or a broker's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.metadata.building import NodeDescription, uuid
from tests.unit.server.rig import Client, Idle, Rig

from odradek.ids import NodeId
from odradek.metadata.features import SUPPORTED_FEATURES
from odradek.metadata.image.cluster import Endpoint, FeatureRange
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestedPartitionData,
    RequestedTopicData,
)
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from odradek.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from odradek.protocol.messages.elect_leaders import ElectLeadersRequest
from odradek.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from odradek.protocol.messages.unregister_broker import UnregisterBrokerRequest

CONTROLLER_PORT = 9093


def second_broker() -> NodeDescription:
    return NodeDescription(
        node_id=NodeId(2),
        incarnation_id=uuid(900),
        broker_endpoints=(Endpoint("PLAINTEXT", "nowhere", 9999, 0),),
        controller_endpoints=(),
        features=tuple(FeatureRange(each.name, each.minimum, each.maximum) for each in SUPPORTED_FEATURES),
        rack=None,
        log_dirs=(uuid(902),),
    )


async def register(rig: Rig, client: Client) -> int:
    response = await client.ask(second_broker().as_broker(rig.node.rooms.cluster_id), 4)
    assert response.error_code == 0
    return int(response.broker_epoch)


async def heartbeat(rig: Rig, client: Client, epoch: int, **wants: Any) -> BrokerHeartbeatResponse:
    fields: dict[str, Any] = {"want_fence": False, "want_shut_down": False, **wants}
    request = BrokerHeartbeatRequest(
        broker_id=2, broker_epoch=epoch, current_metadata_offset=rig.node.rooms.image.provenance.offset, **fields
    )
    response: BrokerHeartbeatResponse = await client.ask(request, 2)
    return response


def _end_process(rig: Rig, client: Client) -> None:
    client.wire.lose(None)


def _reset_by_the_network(rig: Rig, client: Client) -> None:
    client.wire.lose(ConnectionResetError())


def _closed_here(rig: Rig, client: Client) -> None:
    """As one is that was idle for too long."""
    for listener in rig.node.rooms.listeners.by_name.values():
        listener.scope.sweep(rig.clock.monotonic_ms() + 1)
    assert client.wire.closed


@pytest.mark.parametrize(
    ("lose", "is_fenced"), [(_end_process, True), (_reset_by_the_network, False), (_closed_here, False)]
)
def test_a_broker_comes_works_and_its_connection_ends(lose: Callable[[Rig, Client], None], is_fenced: bool) -> None:
    rig = Rig()

    async def live() -> None:
        listening = await rig.network.listen("nowhere", 9999, Idle)
        client = rig.connect(CONTROLLER_PORT)
        epoch = await register(rig, client)
        assert (await heartbeat(rig, client, epoch, want_fence=True)).is_fenced
        answer = await heartbeat(rig, client, epoch)
        assert (answer.error_code, answer.is_fenced, answer.is_caught_up) == (0, False, True)
        block = await client.ask(AllocateProducerIdsRequest(broker_id=2, broker_epoch=epoch), 0)
        assert (block.error_code, block.producer_id_len) == (0, 1000)
        told = AssignReplicasToDirsRequest(broker_id=2, broker_epoch=epoch, directories=[])
        assert (await client.ask(told, 0)).error_code == 0
        listening.close()
        lose(rig, client)
        await asyncio.sleep(0.1)
        assert rig.node.rooms.image.cluster.brokers[NodeId(2)].fenced is is_fenced

    rig.run(live)


def test_a_broker_that_was_replaced_is_told_so() -> None:
    rig = Rig()

    async def ask() -> None:
        client = rig.connect(CONTROLLER_PORT)
        epoch = await register(rig, client)
        for request, version in (
            (AllocateProducerIdsRequest(broker_id=2, broker_epoch=epoch - 1), 0),
            (AssignReplicasToDirsRequest(broker_id=2, broker_epoch=epoch - 1, directories=[]), 0),
            (AlterPartitionRequest(broker_id=2, broker_epoch=epoch - 1, topics=[]), 3),
        ):
            assert (await client.ask(request, version)).error_code == ErrorCode.STALE_BROKER_EPOCH
        assert (await heartbeat(rig, client, epoch - 1)).error_code == ErrorCode.STALE_BROKER_EPOCH

    rig.run(ask)


def test_a_stranger_is_refused() -> None:
    rig = Rig()

    async def ask() -> None:
        response = await rig.connect(CONTROLLER_PORT).ask(second_broker().as_broker("another"), 4)
        assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID

    rig.run(ask)


def test_brokers_speak_to_the_controllers_listener_only() -> None:
    rig = Rig()

    async def ask() -> None:
        with pytest.raises(ConnectionError):
            await heartbeat(rig, rig.connect(), 7)

    rig.run(ask)


def test_partitions_move_and_a_broker_is_forgotten() -> None:
    """Asked of a broker, which hands it on to the controller."""
    rig = Rig()

    async def move() -> None:
        (hosted,) = await rig.create_topic("t")
        peer, client = rig.connect(CONTROLLER_PORT), rig.connect()
        epoch = await register(rig, peer)
        await heartbeat(rig, peer, epoch)
        asked = ReassignablePartition(partition_index=0, replicas=[1, 2])
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=[asked])])
        assert (await client.ask(request, 1)).responses[0].partitions[0].error_code == 0
        listed = await client.ask(ListPartitionReassignmentsRequest(topics=None), 0)
        assert [each.adding_replicas for each in listed.topics[0].partitions] == [[2]]
        partition = rig.node.rooms.image.topics.by_name["t"].partitions[0]
        altered = RequestedPartitionData(
            partition_index=0,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=1), BrokerState(broker_id=2, broker_epoch=epoch)],
        )
        isr = AlterPartitionRequest(
            broker_id=1,
            broker_epoch=rig.node.rooms.image.cluster.brokers[NodeId(1)].broker_epoch,
            topics=[RequestedTopicData(topic_id=hosted.partition.log.topic_id, partitions=[altered])],
        )
        answer = (await peer.ask(isr, 3)).topics[0].partitions[0]
        assert (answer.error_code, answer.isr) == (0, [1, 2])
        assert (await client.ask(ListPartitionReassignmentsRequest(topics=None), 0)).topics == []
        elected = await client.ask(ElectLeadersRequest(election_type=0, topic_partitions=None), 2)
        assert [each.partition_result for each in elected.replica_election_results] == [[]]
        assert (await client.ask(UnregisterBrokerRequest(broker_id=2), 0)).error_code == 0
        assert list(rig.node.rooms.image.cluster.brokers) == [1]
        assert rig.node.rooms.image.topics.by_name["t"].partitions[0].isr == (1,)
        gone = await client.ask(UnregisterBrokerRequest(broker_id=2), 0)
        assert gone.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED

    rig.run(move)
