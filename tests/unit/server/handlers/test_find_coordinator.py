from __future__ import annotations

import asyncio

import pytest
from tests.unit.server.group_clients import QUICK
from tests.unit.server.rig import Rig

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION, SHARE = 0, 1, 2


def ask(version: int, request: FindCoordinatorRequest, **properties: str) -> tuple[Rig, FindCoordinatorResponse]:
    rig = Rig(properties=QUICK | {key.replace("_", "."): text for key, text in properties.items()})

    async def run() -> FindCoordinatorResponse:
        response: FindCoordinatorResponse = await rig.connect().ask(request, version)
        return response

    return rig, rig.run(run)


@pytest.mark.parametrize("version", range(7))
def test_the_only_broker_coordinates_every_group(version: int) -> None:
    request = FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"])
    rig, response = ask(version, request)
    if version < 4:
        assert (response.error_code, response.node_id, response.host, response.port) == (0, 1, "node", 9092)
        assert response.error_message == ("NONE" if version else "")
    else:
        found = [(each.key, each.error_code, each.node_id, each.host, each.port) for each in response.coordinators]
        assert found == [("g", 0, 1, "node", 9092), ("h", 0, 1, "node", 9092)]
    topic = rig.node.rooms.image.topics.by_name["__consumer_offsets"]
    assert len(topic.partitions) == 3
    assert rig.node.rooms.image.configs.of(2, "__consumer_offsets") == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


@pytest.mark.parametrize("version", [1, 3, 6])
def test_and_every_transactional_id(version: int) -> None:
    request = FindCoordinatorRequest(key="x", key_type=TRANSACTION, coordinator_keys=["x"])
    rig, response = ask(version, request, transaction_state_log_num_partitions="4")
    found = response if version < 4 else response.coordinators[0]
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "node", 9092)
    assert len(rig.node.rooms.image.topics.by_name["__transaction_state"].partitions) == 4
    assert rig.node.rooms.image.configs.of(2, "__transaction_state") == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }


def test_many_ask_at_once_and_the_topic_is_made_once() -> None:
    rig = Rig(properties=QUICK)

    async def run() -> list[FindCoordinatorResponse]:
        asking = [rig.connect().ask(FindCoordinatorRequest(key=f"g{number}"), 2) for number in range(20)]
        return await asyncio.gather(*asking)

    assert {response.error_code for response in rig.run(run)} == {0}


def test_a_replication_factor_that_was_asked_for_is_not_lowered() -> None:
    rig, response = ask(3, FindCoordinatorRequest(key="g"), offsets_topic_replication_factor="3")
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert response.error_message is not None
    assert "replication factor" in response.error_message.lower()
    assert "__consumer_offsets" not in rig.node.rooms.image.topics.by_name


def test_a_node_of_a_cluster_waits_for_enough_others() -> None:
    """Too few replicas of the offsets, because somebody asked while brokers were still coming, would stay too few."""
    rig = Rig(properties=QUICK)

    async def run() -> FindCoordinatorResponse:
        rig.node.config.is_alone = False
        response: FindCoordinatorResponse = await rig.connect().ask(FindCoordinatorRequest(key="g"), 3)
        return response

    assert rig.run(run).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "__consumer_offsets" not in rig.node.rooms.image.topics.by_name


@pytest.mark.parametrize(
    ("key_type", "code"),
    [
        (SHARE, ErrorCode.INVALID_REQUEST),
        (77, ErrorCode.INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("version", [3, 6])
def test_other_coordinators_are_not_served(version: int, key_type: int, code: ErrorCode) -> None:
    request = FindCoordinatorRequest(key="x", key_type=key_type, coordinator_keys=["x"])
    _, response = ask(version, request)
    told = response if version < 4 else response.coordinators[0]
    assert (told.error_code, told.node_id, told.host, told.port) == (code, -1, "", -1)
    assert "not served" in (told.error_message or "")
