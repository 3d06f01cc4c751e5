"""Administration where some brokers do not answer: what the others know is told, in good time."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.client.scripted import HOST, PORT, Ports, ScriptedBroker, play, settings

from odradek.client.admin import Admin
from odradek.client.cluster import TopicPartition
from odradek.client.errors import RequestTimedOut
from odradek.client.leaders import LATEST
from odradek.protocol.api import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from odradek.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker

SOON_MS = 4_000


class Rig:
    """The broker that answers, and the id of a second one, at whose address nobody does."""

    def __init__(self, broker: ScriptedBroker, ports: Ports) -> None:
        self.broker = broker
        self.admin = Admin(ports, settings())
        self.dead: int | None = 2
        self._clock = ports.clock
        self._known = broker.answers[ApiKey.METADATA]
        self._began_ms = ports.clock.monotonic_ms()
        broker.answers[ApiKey.METADATA] = self._metadata
        broker.answers[ApiKey.LIST_GROUPS] = self.groups

    @property
    def took_ms(self) -> int:
        return self._clock.monotonic_ms() - self._began_ms

    def groups(self, request: ListGroupsRequest) -> ListGroupsResponse:
        return ListGroupsResponse(groups=[ListedGroup(group_id="g", protocol_type="consumer")])

    def _metadata(self, request: MetadataRequest) -> Message:
        response = self._known(request)
        assert isinstance(response, MetadataResponse)
        if self.dead is not None:
            response.brokers.append(MetadataResponseBroker(node_id=self.dead, host=HOST, port=PORT + 1))
        return response


def test_a_broker_that_cannot_be_reached_is_an_error_beside_the_others() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        rig = Rig(broker, ports)
        told = await rig.admin.list_groups_by_broker(timeout_ms=SOON_MS)
        assert [group.group_id for group in told[1]] == ["g"]  # type: ignore[union-attr]
        assert isinstance(told[2], KafkaError)
        assert told[2].code is ErrorCode.NETWORK_EXCEPTION
        assert rig.took_ms <= SOON_MS
        assert broker.count(ApiKey.LIST_GROUPS) == 1  # Who has answered is not asked again.
        with pytest.raises(KafkaError, match="Connection refused"):
            await rig.admin.list_groups()
        await rig.admin.close()

    play(test)


def test_a_broker_that_is_gone_is_left_out_and_the_others_are_asked_anew() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        rig = Rig(broker, ports)

        def groups(request: ListGroupsRequest) -> ListGroupsResponse:
            if rig.dead is None:
                return rig.groups(request)
            rig.dead = None  # The controller has noticed, and its groups come here.
            return ListGroupsResponse(groups=[])

        broker.answers[ApiKey.LIST_GROUPS] = groups
        told = await rig.admin.list_groups_by_broker(timeout_ms=SOON_MS)
        assert {node: [group.group_id for group in found] for node, found in told.items()} == {1: ["g"]}  # type: ignore[union-attr]
        assert rig.took_ms < 1_000
        await rig.admin.close()

    play(test)


def test_groups_that_are_being_loaded_are_waited_for() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        rig = Rig(broker, ports)
        rig.dead = None
        codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]
        broker.answers[ApiKey.LIST_GROUPS] = lambda request: ListGroupsResponse(error_code=codes.pop(0), groups=[])
        assert await rig.admin.list_groups() == []
        assert codes == []
        await rig.admin.close()

    play(test)


def test_log_directories_of_a_broker_that_is_silent() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        rig = Rig(broker, ports)

        async def never(request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
            return await asyncio.Event().wait()  # type: ignore[return-value]

        broker.answers[ApiKey.DESCRIBE_LOG_DIRS] = never
        told = await rig.admin.describe_log_dirs((1, 7), timeout_ms=SOON_MS)
        assert {node: failure.code for node, failure in told.items() if isinstance(failure, KafkaError)} == {
            1: ErrorCode.REQUEST_TIMED_OUT,
            7: ErrorCode.BROKER_NOT_AVAILABLE,
        }
        assert rig.took_ms <= SOON_MS + 100
        await rig.admin.close()

    play(test)


def test_a_leader_that_is_silent_holds_up_neither_for_long_nor_what_comes_next() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        rig = Rig(broker, ports)
        broker.topics["t"] = 1
        wanted = {TopicPartition("t", 0): LATEST}

        async def never(request: ListOffsetsRequest) -> ListOffsetsResponse:
            return await asyncio.Event().wait()  # type: ignore[return-value]

        broker.answers[ApiKey.LIST_OFFSETS] = never
        (told,) = (await rig.admin.list_offsets(wanted, timeout_ms=SOON_MS)).values()
        assert isinstance(told, KafkaError)
        assert told.code is ErrorCode.REQUEST_TIMED_OUT
        assert rig.took_ms <= SOON_MS + 100
        answer = ListOffsetsPartitionResponse(partition_index=0, offset=9)
        broker.answers[ApiKey.LIST_OFFSETS] = lambda request: ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name="t", partitions=[answer])]
        )
        (told,) = (await rig.admin.list_offsets(wanted, timeout_ms=SOON_MS)).values()
        assert not isinstance(told, KafkaError)
        assert told.offset == 9
        await rig.admin.close()

    play(test)


def test_a_controller_that_does_not_answer() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        rig = Rig(broker, ports)

        async def never(request: Message) -> Message:
            return await asyncio.Event().wait()  # type: ignore[return-value]

        broker.answers[ApiKey.DESCRIBE_QUORUM] = broker.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = never
        with pytest.raises(RequestTimedOut):
            await rig.admin.describe_quorum(timeout_ms=SOON_MS)
        with pytest.raises(RequestTimedOut):
            await rig.admin.list_reassignments(timeout_ms=SOON_MS)
        assert rig.took_ms <= 2 * SOON_MS + 200
        await rig.admin.list_topics()  # Another connection: it does not wait behind those.
        assert rig.took_ms <= 2 * SOON_MS + 400
        await rig.admin.close()

    play(test)
