"""Which open transactions hang, while coordinators are asked one after the other and others go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.unit.client.scripted import HOST, PORT, Ports, ScriptedBroker, play, settings

from odradek.apps.cli.hanging_transactions import OpenTransaction, hanging_among, open_transactions
from odradek.client.admin import Admin
from odradek.client.cluster import TopicPartition
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from odradek.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from odradek.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from odradek.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from odradek.protocol.messages.list_transactions import TransactionState as Listed

T = "t"
PRODUCER = 5


class Rig:
    """A broker with one open transaction in each of two partitions, and what its coordinator says of them."""

    def __init__(self, broker: ScriptedBroker, ports: Ports) -> None:
        self.admin = Admin(ports, settings())
        self.now_ms = ports.clock.now_ms()
        self.open = {0: 10, 1: 20}
        """First offsets by partition."""
        self.written_ms = {0: self.now_ms - 5_000, 1: self.now_ms - 1_000}
        self.ids = {PRODUCER: "pay"}
        self.list_code = ErrorCode.NONE
        self.code = ErrorCode.NONE
        self.partitions: list[int] = []
        """Those that the coordinator says are in the transaction."""
        self.when_described: Callable[[], None] = lambda: None
        broker.topics = {T: 2}
        broker.answers |= {
            ApiKey.DESCRIBE_PRODUCERS: self._producers,
            ApiKey.LIST_TRANSACTIONS: self._list,
            ApiKey.DESCRIBE_TRANSACTIONS: self._describe,
            ApiKey.FIND_COORDINATOR: self._coordinator,
        }

    async def found(self, older_than_ms: int = -1) -> list[OpenTransaction]:
        partitions = [TopicPartition(T, 0), TopicPartition(T, 1)]
        return await open_transactions(self.admin, partitions, older_than_ms=older_than_ms)

    async def hanging(self) -> list[tuple[int, int]]:
        hanging = await hanging_among(self.admin, await self.found())
        return [(each.partition.partition, each.start_offset) for each in hanging]

    def _producers(self, request: DescribeProducersRequest) -> DescribeProducersResponse:
        (asked,) = request.topics
        return DescribeProducersResponse(
            topics=[
                TopicResponse(
                    name=T,
                    partitions=[
                        PartitionResponse(partition_index=each, active_producers=[self._producer(each)])
                        for each in asked.partition_indexes
                    ],
                )
            ]
        )

    def _producer(self, partition: int) -> ProducerState:
        return ProducerState(
            producer_id=PRODUCER,
            producer_epoch=0,
            last_timestamp=self.written_ms[partition],
            coordinator_epoch=3,
            current_txn_start_offset=self.open.get(partition, -1),
        )

    def _list(self, request: ListTransactionsRequest) -> ListTransactionsResponse:
        listed = [
            Listed(transactional_id=name, producer_id=producer_id, transaction_state="Ongoing")
            for producer_id, name in self.ids.items()
            if producer_id in request.producer_id_filters
        ]
        return ListTransactionsResponse(error_code=self.list_code, transaction_states=listed)

    def _describe(self, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        self.when_described()
        state = TransactionState(
            error_code=self.code,
            transactional_id="pay",
            transaction_state="Ongoing",
            transaction_timeout_ms=1,
            transaction_start_time_ms=1,
            producer_id=PRODUCER,
            producer_epoch=0,
            topics=[TopicData(topic=T, partitions=self.partitions)],
        )
        return DescribeTransactionsResponse(transaction_states=[state])

    def _coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(coordinators=[Coordinator(key="pay", node_id=1, host=HOST, port=PORT)])


def rigged(test: Callable[[Rig], Awaitable[None]]) -> None:
    async def run(broker: ScriptedBroker, ports: Ports) -> None:
        rig = Rig(broker, ports)
        await test(rig)
        await rig.admin.close()

    play(run)


def test_only_what_is_old_enough_is_looked_at() -> None:
    async def test(rig: Rig) -> None:
        assert [each.start_offset for each in await rig.found()] == [10, 20]
        assert [each.start_offset for each in await rig.found(older_than_ms=3_000)] == [10]
        assert await rig.found(older_than_ms=10_000) == []

    rigged(test)


def test_partitions_that_the_coordinator_counts_do_not_hang() -> None:
    async def test(rig: Rig) -> None:
        rig.partitions = [1]
        assert await rig.hanging() == [(0, 10)]
        rig.partitions = [0, 1]
        assert await rig.hanging() == []

    rigged(test)


def test_what_no_coordinator_has_heard_of_hangs() -> None:
    async def test(rig: Rig) -> None:
        rig.ids = {}
        assert await rig.hanging() == [(0, 10), (1, 20)]

    rigged(test)


def test_an_id_that_has_been_forgotten_meanwhile_ends_nothing() -> None:
    async def test(rig: Rig) -> None:
        rig.code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert await rig.hanging() == [(0, 10), (1, 20)]

    rigged(test)


def test_what_ends_while_coordinators_are_asked_does_not_hang() -> None:
    """Its coordinator counts its partitions no more, and the producers were described before."""

    async def test(rig: Rig) -> None:
        rig.when_described = lambda: rig.open.update({0: -1, 1: 21})  # And another has begun.
        assert await rig.hanging() == []

    rigged(test)


@pytest.mark.parametrize("silent", ["list", "describe"])
def test_a_coordinator_that_does_not_tell_may_know_of_it(silent: str) -> None:
    async def test(rig: Rig) -> None:
        if silent == "list":
            rig.list_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        else:
            rig.code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        with pytest.raises(KafkaError):
            await rig.hanging()

    rigged(test)
