"""Administration where some brokers do not answer: what the others know is told, in good time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.client.scripted import HOST, PORT, Ports, ScriptedBroker, play, settings

from odradek.client.admin import Admin
from odradek.client.cluster import TopicPartition
from odradek.client.errors import RequestTimedOut
from odradek.client.leaders import LATEST
from odradek.protocol.api import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.api_versions import ApiVersionsResponse
from odradek.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from odradek.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.messages.list_transactions import ListTransactionsResponse
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


@pytest.mark.parametrize(
    ("served", "filters", "is_refused"),
    [
        (0, {}, False),
        (0, {"longer_than_ms": 0}, True),
        (1, {"longer_than_ms": 0}, False),
        (1, {"pattern": "a.*"}, True),
        (2, {"pattern": "a.*"}, False),
    ],
)
def test_filters_that_a_broker_cannot_be_told_are_not_left_out(
    served: int, filters: dict[str, Any], is_refused: bool
) -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        rig = Rig(broker, ports)
        rig.dead = None
        announce = broker.answers[ApiKey.API_VERSIONS]
        broker.answers[ApiKey.LIST_TRANSACTIONS] = lambda request: ListTransactionsResponse()

        def older(request: Message) -> Message:
            response = announce(request)
            assert isinstance(response, ApiVersionsResponse)
            for each in response.api_keys:
                if each.api_key == ApiKey.LIST_TRANSACTIONS:
                    each.max_version = served
            return response

        broker.answers[ApiKey.API_VERSIONS] = older
        (told,) = (await rig.admin.list_transactions_by_broker(**filters)).values()
        if is_refused:
            assert isinstance(told, KafkaError)
            assert told.code is ErrorCode.UNSUPPORTED_VERSION
        else:
            assert told == []
        await rig.admin.close()

    play(test)


def test_a_state_that_a_broker_does_not_know_is_an_error() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        rig = Rig(broker, ports)
        rig.dead = None
        broker.answers[ApiKey.LIST_TRANSACTIONS] = lambda request: ListTransactionsResponse(
            unknown_state_filters=["Lost"]
        )
        (told,) = (await rig.admin.list_transactions_by_broker(states=["Lost"])).values()
        assert isinstance(told, KafkaError)
        assert "Lost" in told.message
        await rig.admin.close()

    play(test)


def test_who_fences_a_producer_waits_until_its_transaction_is_aborted() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        rig = Rig(broker, ports)
        rig.dead = None
        codes = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]
        broker.answers[ApiKey.FIND_COORDINATOR] = lambda request: FindCoordinatorResponse(
            coordinators=[Coordinator(key="pay", node_id=1, host=HOST, port=PORT)]
        )
        broker.answers[ApiKey.INIT_PRODUCER_ID] = lambda request: InitProducerIdResponse(
            error_code=codes.pop(0), producer_id=5, producer_epoch=3
        )
        assert await rig.admin.fence_producer("pay", transaction_timeout_ms=7_000) == (5, 3)
        assert codes == []
        (_, _, asked) = broker.seen[-1]
        assert isinstance(asked, InitProducerIdRequest)
        assert (asked.transactional_id, asked.transaction_timeout_ms) == ("pay", 7_000)
        assert (asked.producer_id, asked.producer_epoch) == (-1, -1)
        await rig.admin.close()

    play(test)
