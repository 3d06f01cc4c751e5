"""DescribeTransactions and ListTransactions in all their versions, over the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.server.rig import Client, Rig

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.protocol.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

Test = Callable[[Rig, Client], Awaitable[None]]

PARTITIONS = {"transaction.state.log.num.partitions": "3"}


def on_a_node(test: Test) -> None:
    """On which one transactional id has a transaction, `open`, and another none, `idle`."""
    rig = Rig(properties=PARTITIONS)

    async def run() -> None:
        await rig.create_topic("t", 3)
        client = rig.connect()
        await new_producer(client, "idle")
        producer = await new_producer(client, "open")
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="open",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[2, 0])],
        )
        (topic,) = (await client.ask(request, 3)).results_by_topic_v3_and_below
        assert [each.partition_error_code for each in topic.results_by_partition] == [0, 0]
        await test(rig, client)

    rig.run(run)


async def new_producer(client: Client, transactional_id: str) -> InitProducerIdResponse:
    await client.ask(FindCoordinatorRequest(key=transactional_id, key_type=1), 3)
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=45_000)
    response: InitProducerIdResponse = await client.ask(request, 4)
    assert response.error_code == 0
    return response


async def listed(client: Client, version: int = 2, **filters: object) -> dict[str, str]:
    """States by transactional id."""
    response = await ask_for_list(client, version, **filters)
    assert response.error_code == 0
    return {each.transactional_id: each.transaction_state for each in response.transaction_states}


async def ask_for_list(client: Client, version: int = 2, **filters: object) -> ListTransactionsResponse:
    request = ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": [], **filters})
    response: ListTransactionsResponse = await client.ask(request, version)
    return response


async def described(client: Client, transactional_id: str) -> TransactionState:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    (state,) = (await client.ask(request, 0)).transaction_states
    assert isinstance(state, TransactionState)
    return state


@pytest.mark.parametrize("version", range(3))
def test_all_that_this_broker_coordinates_are_listed(version: int) -> None:
    async def look(rig: Rig, client: Client) -> None:
        assert await listed(client, version) == {"idle": "Empty", "open": "Ongoing"}
        assert await listed(client, version, state_filters=["Ongoing", "PrepareCommit"]) == {"open": "Ongoing"}
        producer_id = (await described(client, "idle")).producer_id
        assert await listed(client, version, producer_id_filters=[producer_id]) == {"idle": "Empty"}

    on_a_node(look)


def test_by_how_long_ago_the_transaction_began() -> None:
    async def look(rig: Rig, client: Client) -> None:
        await asyncio.sleep(5)
        assert "open" in await listed(client, duration_filter=4_000)
        assert "open" not in await listed(client, duration_filter=6_000)
        assert "open" in await listed(client, duration_filter=-1)
        assert "open" in await listed(client, 0, duration_filter=6_000)  # Which version 0 has no place for.

    on_a_node(look)


def test_by_an_expression_for_the_whole_id() -> None:
    async def look(rig: Rig, client: Client) -> None:
        assert await listed(client, transactional_id_pattern="o.*|never") == {"open": "Ongoing"}
        assert await listed(client, transactional_id_pattern="pe") == {}
        assert len(await listed(client, transactional_id_pattern="")) == 2
        response = await ask_for_list(client, transactional_id_pattern="((")
        assert (response.error_code, response.transaction_states) == (ErrorCode.INVALID_REGULAR_EXPRESSION, [])

    on_a_node(look)


def test_states_that_there_are_not_are_told() -> None:
    async def look(rig: Rig, client: Client) -> None:
        response = await ask_for_list(client, state_filters=["ongoing", "Empty", "Lost", "Lost", "Dead"])
        assert response.unknown_state_filters == ["ongoing", "Lost"]
        assert [each.transactional_id for each in response.transaction_states] == ["idle"]
        none = await ask_for_list(client, state_filters=["Lost"])
        assert (none.error_code, none.transaction_states) == (0, [])

    on_a_node(look)


def test_nothing_is_listed_while_something_would_be_missing() -> None:
    async def look(rig: Rig, client: Client) -> None:
        runner = rig.node.rooms.transactions.runner("idle")
        assert runner is not None
        runner.state = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        response = await ask_for_list(client)
        assert (response.error_code, response.transaction_states) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
        assert (await described(client, "idle")).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    on_a_node(look)


def test_a_transaction_is_described() -> None:
    async def look(rig: Rig, client: Client) -> None:
        state = await described(client, "open")
        assert (state.error_code, state.transaction_state, state.transaction_timeout_ms) == (0, "Ongoing", 45_000)
        assert state.transaction_start_time_ms > 0
        assert [(each.topic, each.partitions) for each in state.topics] == [("t", [2, 0])]
        idle = await described(client, "idle")
        assert (idle.transaction_state, idle.transaction_start_time_ms, idle.topics) == ("Empty", -1, [])
        assert idle.producer_id != state.producer_id

    on_a_node(look)


def test_ids_that_there_are_not() -> None:
    async def look(rig: Rig, client: Client) -> None:
        request = DescribeTransactionsRequest(transactional_ids=["nobody", "", "idle"])
        states = (await client.ask(request, 0)).transaction_states
        assert [(each.transactional_id, each.error_code) for each in states] == [
            ("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
            ("", ErrorCode.INVALID_REQUEST),
            ("idle", 0),
        ]
        assert "nobody" not in await listed(client)

    on_a_node(look)


def test_a_broker_that_coordinates_nothing() -> None:
    rig = Rig()

    async def look() -> None:
        client = rig.connect()
        assert await listed(client) == {}
        assert (await described(client, "x")).error_code == ErrorCode.NOT_COORDINATOR

    rig.run(look)
