"""Produce in transactions: who has to be asked before, and what is answered where the transaction may not begin."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from tests.unit.server.asking import deletion, fetch, fetched, produce_bytes, produced, wanted
from tests.unit.server.rig import Client, Rig

from odradek.coordinator.shard import ProducerKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.records.batch import build_batch, decode_records, iter_batches, read_header
from odradek.protocol.records.record import Record

Test = Callable[[Rig, Client], Awaitable[None]]

ONE_ASKS, ADDS = 11, 12
"""Versions of Produce: up to the first a partition must be part of the transaction, from the other on it becomes so."""


def on_a_node(test: Test, **properties: str) -> None:
    quick = {"transaction.state.log.num.partitions": "1"} | {
        key.replace("_", "."): text for key, text in properties.items()
    }
    rig = Rig(properties=quick)

    async def run() -> None:
        await rig.create_topic("t", 3)
        await test(rig, rig.connect())

    rig.run(run)


async def new_producer(client: Client, transactional_id: str = "tx") -> ProducerKey:
    await client.ask(FindCoordinatorRequest(key=transactional_id, key_type=1), 3)
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    response = await client.ask(request, 4)
    while response.error_code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS):
        await asyncio.sleep(0.05)
        response = await client.ask(request, 4)
    assert response.error_code == 0
    return ProducerKey(response.producer_id, response.producer_epoch)


def batch(key: ProducerKey, sequence: int = 0, *, value: bytes = b"x") -> bytes:
    return bytes(
        build_batch(
            [Record(value=value)],
            producer_id=key.producer_id,
            producer_epoch=key.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
    )


async def send(
    rig: Rig,
    client: Client,
    key: ProducerKey,
    sequence: int = 0,
    *,
    version: int = ONE_ASKS,
    partition: int = 0,
    transactional_id: str = "tx",
    value: bytes = b"x",
) -> PartitionProduceResponse:
    request = produce_bytes(
        "t",
        batch(key, sequence, value=value),
        partition=partition,
        topic_id=rig.topic_id("t"),
        transactional_id=transactional_id,
    )
    return produced(await client.ask(request, version))


async def add(client: Client, key: ProducerKey, partitions: Sequence[int] = (0,), *, topic: str = "t") -> set[int]:
    """As producers do that have to."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=key.producer_id,
        v3_and_below_producer_epoch=key.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
    )
    response = await client.ask(request, 3)
    (told,) = response.results_by_topic_v3_and_below
    return {part.partition_error_code for part in told.results_by_partition}


async def end(client: Client, key: ProducerKey, *, committed: bool = True, version: int = 4) -> EndTxnResponse:
    request = EndTxnRequest(
        transactional_id="tx", producer_id=key.producer_id, producer_epoch=key.producer_epoch, committed=committed
    )
    response: EndTxnResponse = await client.ask(request, version)
    return response


async def committed_values(client: Client, partition: int = 0) -> list[bytes | None]:
    """As consumers see them: without markers, and without what the answer calls aborted."""
    response = await client.ask(fetch("t", wanted(partition), isolation_level=1), 12)
    told = fetched(response)[partition]
    aborted = {each.producer_id for each in told.aborted_transactions or ()}
    return [
        record.value
        for each in iter_batches(told.records or b"")
        if not (header := read_header(each)).is_control and header.producer_id not in aborted
        for record in decode_records(each)
    ]


def test_only_what_was_added_can_be_written_to() -> None:
    async def test(rig: Rig, client: Client) -> None:
        key = await new_producer(client)
        refused = await send(rig, client, key)
        assert refused.error_code == ErrorCode.TRANSACTION_ABORTABLE
        for version in (3, 9, 10):
            assert (await send(rig, client, key, version=version)).error_code == ErrorCode.INVALID_TXN_STATE
        assert await add(client, key) == {0}
        assert (await send(rig, client, key)).error_code == 0
        assert (await send(rig, client, key, partition=1)).error_code == ErrorCode.TRANSACTION_ABORTABLE
        assert await committed_values(client) == []
        assert (await end(client, key)).error_code == 0
        await asyncio.sleep(0.5)
        assert await committed_values(client) == [b"x"]
        late = await send(rig, client, key, 1)
        assert late.error_code == ErrorCode.TRANSACTION_ABORTABLE, "the transaction has ended"

    on_a_node(test)


def test_nobody_is_asked_where_the_transaction_is_open_or_verification_is_off() -> None:
    async def test(rig: Rig, client: Client) -> None:
        asked: list[object] = []
        prove = rig.node.rooms.verifier.prove

        async def noted(*what: object, **how: bool) -> object:
            asked.append(what)
            return await prove(*what, **how)  # type: ignore[arg-type]

        rig.node.rooms.verifier.prove = noted  # type: ignore[method-assign, assignment]
        key = await new_producer(client)
        await add(client, key)
        for sequence in range(3):
            assert (await send(rig, client, key, sequence)).error_code == 0
        assert len(asked) == 1
        rig.node.config.transaction_partition_verification_enable = False
        rig.node._hosting.apply_broker_config()
        assert (await send(rig, client, key, partition=2)).error_code == 0, "which would hang if nobody ended it"
        assert len(asked) == 1

    on_a_node(test)


def test_from_version_12_on_the_partition_becomes_part_of_the_transaction() -> None:
    async def test(rig: Rig, client: Client) -> None:
        key = await new_producer(client)
        for partition in range(3):
            assert (await send(rig, client, key, version=ADDS, partition=partition)).error_code == 0
        ended = await end(client, key, version=5)
        assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (
            0,
            key.producer_id,
            key.producer_epoch + 1,
        )
        await asyncio.sleep(0.5)
        again = await send(rig, client, key, 1, version=ADDS)
        assert again.error_code == ErrorCode.INVALID_PRODUCER_EPOCH, "its epoch ended with the transaction"
        following = ProducerKey(ended.producer_id, ended.producer_epoch)
        assert (await send(rig, client, following, version=ADDS, value=b"y")).error_code == 0
        assert (await end(client, following, version=5, committed=False)).error_code == 0
        await asyncio.sleep(0.5)
        assert [await committed_values(client, each) for each in (1, 2)] == [[b"x"], [b"x"]]
        assert rig.node.rooms.replicas.require("t", 0).partition.log.last_stable_offset == 4

    on_a_node(test)


def test_a_transaction_that_begins_with_a_gap_is_refused_where_epochs_rise() -> None:
    async def test(rig: Rig, client: Client) -> None:
        key = await new_producer(client)
        early = await send(rig, client, key, 1, version=ADDS)
        assert early.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (await send(rig, client, key, 0, version=ADDS)).error_code == 0

    on_a_node(test)


def test_strangers_and_zombies_are_refused() -> None:
    async def test(rig: Rig, client: Client) -> None:
        old = await new_producer(client)
        new = await new_producer(client)
        assert new.producer_epoch == old.producer_epoch + 1
        assert (await send(rig, client, old)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await send(rig, client, old, version=ADDS)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await add(client, old) == {ErrorCode.PRODUCER_FENCED}
        assert (await end(client, old)).error_code == ErrorCode.PRODUCER_FENCED
        assert (await end(client, old, version=1)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        stranger = ProducerKey(999, 0)
        assert (await send(rig, client, stranger)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert (await end(client, stranger)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        named_otherwise = await send(rig, client, new, transactional_id="other")
        assert named_otherwise.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert rig.node.rooms.replicas.require("t", 0).partition.log.log_end_offset == 0

    on_a_node(test)


def test_ends_that_come_twice_or_the_other_way_round() -> None:
    async def test(rig: Rig, client: Client) -> None:
        key = await new_producer(client)
        assert (await end(client, key)).error_code == ErrorCode.INVALID_TXN_STATE, "none has begun"
        await add(client, key)
        await send(rig, client, key)
        assert (await end(client, key)).error_code == 0
        await asyncio.sleep(0.5)
        assert (await end(client, key)).error_code == 0, "asked again"
        assert (await end(client, key, committed=False)).error_code == ErrorCode.INVALID_TXN_STATE

    on_a_node(test)


@pytest.mark.parametrize("topic", ["t", "nope"])
def test_one_partition_that_is_not_there_costs_the_request(topic: str) -> None:
    async def test(rig: Rig, client: Client) -> None:
        key = await new_producer(client)
        wanted_codes = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        if topic == "t":
            wanted_codes.add(ErrorCode.OPERATION_NOT_ATTEMPTED)
        assert await add(client, key, (0, 7), topic=topic) == wanted_codes
        assert (await send(rig, client, key)).error_code == ErrorCode.TRANSACTION_ABORTABLE

    on_a_node(test)


def test_brokers_ask_for_many_producers_at_once() -> None:
    async def test(rig: Rig, client: Client) -> None:
        keys = {name: await new_producer(client, name) for name in ("a", "b")}
        asked = [
            AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=key.producer_id,
                producer_epoch=key.producer_epoch,
                verify_only=name == "b",
                topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
            )
            for name, key in keys.items()
        ]
        response = await client.ask(AddPartitionsToTxnRequest(transactions=asked), 5)
        told = {
            each.transactional_id: each.topic_results[0].results_by_partition[0].partition_error_code
            for each in response.results_by_transaction
        }
        assert (response.error_code, told) == (0, {"a": 0, "b": ErrorCode.TRANSACTION_ABORTABLE})

    on_a_node(test)


@pytest.mark.parametrize("version", [ONE_ASKS, ADDS])
def test_several_partitions_at_once_of_which_some_may_not_be_written_to(version: int) -> None:
    async def test(rig: Rig, client: Client) -> None:
        key = await new_producer(client)
        await add(client, key, (0, 2))
        parts = [PartitionProduceData(index=index, records=batch(key)) for index in range(3)]
        topic = TopicProduceData(name="t", topic_id=rig.topic_id("t"), partition_data=parts)
        request = ProduceRequest(transactional_id="tx", acks=-1, timeout_ms=30_000, topic_data=[topic])
        response = await client.ask(request, version)
        told = [part.error_code for part in response.responses[0].partition_responses]
        assert told == ([0, ErrorCode.TRANSACTION_ABORTABLE, 0] if version == ONE_ASKS else [0, 0, 0])

    on_a_node(test)


def test_two_producers_in_one_request_are_none() -> None:
    async def test(rig: Rig, client: Client) -> None:
        key, other = await new_producer(client), await new_producer(client, "other")
        parts = [PartitionProduceData(index=index, records=batch(each)) for index, each in enumerate((key, other))]
        topic = TopicProduceData(name="t", topic_id=rig.topic_id("t"), partition_data=parts)
        response = await client.ask(
            ProduceRequest(transactional_id="tx", acks=-1, timeout_ms=30_000, topic_data=[topic]), ADDS
        )
        told = {part.error_code for part in response.responses[0].partition_responses}
        assert told == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}

    on_a_node(test)


def test_what_comes_behind_a_first_batch_waits_for_it() -> None:
    """Both are sent at once; the second would be out of order if it did not."""

    async def test(rig: Rig, client: Client) -> None:
        key = await new_producer(client)
        answers = await asyncio.gather(*(send(rig, client, key, each, version=ADDS) for each in range(5)))
        assert [(each.error_code, each.base_offset) for each in answers] == [(0, each) for each in range(5)]

    on_a_node(test)


def test_an_administrator_ends_what_hangs() -> None:
    async def test(rig: Rig, client: Client) -> None:
        key = await new_producer(client)
        await add(client, key)
        await send(rig, client, key)
        marker = WritableTxnMarker(
            producer_id=key.producer_id,
            producer_epoch=key.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0, 9])],
            coordinator_epoch=0,
        )
        response = await client.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
        (told,) = response.markers
        codes = {part.partition_index: part.error_code for part in told.topics[0].partitions}
        assert (told.producer_id, codes) == (key.producer_id, {0: 0, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
        assert rig.node.rooms.replicas.require("t", 0).partition.log.last_stable_offset == 2
        assert await committed_values(client) == []

    on_a_node(test)


def test_a_deleted_topic_does_not_hold_up_the_end() -> None:
    async def test(rig: Rig, client: Client) -> None:
        key = await new_producer(client)
        for partition in (0, 1):
            await send(rig, client, key, version=ADDS, partition=partition)
        await client.ask(deletion("t"), 6)
        await asyncio.sleep(1)
        ended = await end(client, key, version=5)
        assert ended.error_code == 0
        await asyncio.sleep(1)
        assert (await new_producer(client)).producer_epoch > ended.producer_epoch

    on_a_node(test)
