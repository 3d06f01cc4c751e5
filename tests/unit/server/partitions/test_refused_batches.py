"""A batch of an idempotent producer that was refused and comes again is not overtaken by those behind it."""

from __future__ import annotations

import asyncio

from tests.unit.server.replica_rig import ALL, ReplicaRig

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.records.batch import build_batch
from odradek.protocol.records.record import Record


async def produce(
    rig: ReplicaRig, sequence: int, *, broker: int = 1, index: int = 0, epoch: int = 0
) -> tuple[ErrorCode, int]:
    batch = build_batch(
        [Record(value=b"%d" % sequence)], timestamp=0, producer_id=7, producer_epoch=epoch, base_sequence=sequence
    )
    part = PartitionProduceData(index=index, records=batch)
    topic = TopicProduceData(topic_id=rig.image.topics.by_name["t"].topic_id, partition_data=[part])
    request = ProduceRequest(acks=ALL, timeout_ms=5_000, topic_data=[topic])
    answer: PartitionProduceResponse = (await rig.request(broker, request, 13)).responses[0].partition_responses[0]
    return ErrorCode(answer.error_code), answer.base_offset


async def with_too_few(rig: ReplicaRig) -> None:
    await rig.create_topic("t", [[1, 2]], isr=[1], configs={"min.insync.replicas": "2"})
    rig.refuses = ErrorCode.OPERATION_NOT_ATTEMPTED


def test_a_new_producers_second_batch_does_not_go_first() -> None:
    rig = ReplicaRig(2)

    async def test() -> None:
        await with_too_few(rig)
        assert await produce(rig, 0) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        await rig.change("t", isr=[1, 2])
        assert await produce(rig, 1) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        assert await produce(rig, 2) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        assert await produce(rig, 0) == (ErrorCode.NONE, 0)
        assert await produce(rig, 1) == (ErrorCode.NONE, 1)
        assert await produce(rig, 2) == (ErrorCode.NONE, 2)
        await asyncio.sleep(6)
        assert await produce(rig, 4) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)

    rig.run(test)


def test_a_known_producers_second_batch_is_not_out_of_order() -> None:
    rig = ReplicaRig(2)

    async def test() -> None:
        await rig.create_topic("t", [[1, 2]], configs={"min.insync.replicas": "2"})
        assert await produce(rig, 0) == (ErrorCode.NONE, 0)
        rig.refuses = ErrorCode.OPERATION_NOT_ATTEMPTED
        await rig.change("t", isr=[1])
        assert await produce(rig, 1) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        await rig.change("t", isr=[1, 2])
        assert await produce(rig, 2) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        assert await produce(rig, 0) == (ErrorCode.NONE, 0), "one from before is what it was"
        assert await produce(rig, 1) == (ErrorCode.NONE, 1)
        assert await produce(rig, 2) == (ErrorCode.NONE, 2)

    rig.run(test)


def test_a_leader_that_did_not_know_that_it_leads() -> None:
    rig = ReplicaRig(2)

    async def test() -> None:
        await rig.create_topic("t", [[1, 2]])
        assert await produce(rig, 0) == (ErrorCode.NONE, 0)
        await rig.until(lambda: rig.ends("t")[2][1] == 1)
        rig.brokers[2].informed = False
        await rig.elect("t", 2, [2])
        assert await produce(rig, 1, broker=2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        await rig.inform(2)
        assert await produce(rig, 2, broker=2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert await produce(rig, 1, broker=2) == (ErrorCode.NONE, 1)
        assert await produce(rig, 2, broker=2) == (ErrorCode.NONE, 2)

    rig.run(test)


def test_a_new_leader_calls_nothing_out_of_order_for_a_while() -> None:
    """It led before, took the first batch, was replaced and lost it; the second comes when it leads again."""
    rig = ReplicaRig(2)

    async def test() -> None:
        await rig.create_topic("t", [[1, 2]])
        assert await produce(rig, 0) == (ErrorCode.NONE, 0)
        assert await produce(rig, 2) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), "nobody led before"
        await rig.elect("t", 2, [1, 2])
        await rig.elect("t", 1, [1, 2])
        assert await produce(rig, 2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert await produce(rig, 1) == (ErrorCode.NONE, 1)
        assert await produce(rig, 2) == (ErrorCode.NONE, 2)

    rig.run(test)


def test_a_leader_that_may_have_been_replaced_calls_nothing_out_of_order() -> None:
    """It was cut off with a batch that nobody fetched; its producer has gone on elsewhere, and asks it once more."""
    rig = ReplicaRig(2)

    async def test() -> None:
        await rig.create_topic("t", [[1, 2]])
        assert await produce(rig, 0) == (ErrorCode.NONE, 0)
        assert await produce(rig, 2) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), "its follower has all"
        rig.brokers[2].fetchers.close()
        assert await produce(rig, 1) == (ErrorCode.REQUEST_TIMED_OUT, 1)
        assert await produce(rig, 5) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    rig.run(test)


def test_what_a_leader_that_is_cut_off_was_sent_first_comes_first_to_the_next() -> None:
    """The first went to somebody who could tell nobody; told of the second, librdkafka takes both for kept."""
    rig = ReplicaRig(2)

    async def test() -> None:
        await rig.create_topic("t", [[1, 2]])
        await rig.elect("t", 2, [2])
        assert await produce(rig, 3, broker=2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert await produce(rig, 4, broker=2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        await asyncio.sleep(30)
        assert await produce(rig, 3, broker=2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert [await produce(rig, sequence, broker=2) for sequence in range(5)] == [
            (ErrorCode.NONE, offset) for offset in range(5)
        ]

    rig.run(test)


def test_any_sequence_is_a_first_one_where_nothing_can_be_on_its_way() -> None:
    """The producer's records are gone, or were not here when somebody had to be elected who was not in sync."""
    rig = ReplicaRig(2)

    async def test() -> None:
        await rig.create_topic("t", [[1, 2], [1, 2], [1, 2]])
        assert await produce(rig, 3) == (ErrorCode.NONE, 0), "nobody led before"
        await rig.change("t", 1, leader=2, isr=[2], leader_recovery_state=1)
        assert await produce(rig, 3, broker=2, index=1) == (ErrorCode.NONE, 0)
        await rig.elect("t", 2, [2], index=2)
        await asyncio.sleep(60)
        assert await produce(rig, 3, broker=2, index=2) == (ErrorCode.NONE, 0)

    rig.run(test)


def test_with_the_switch_off_producers_are_told_what_apache_kafka_tells_them() -> None:
    rig = ReplicaRig(2, properties={"odradek.ordered.producers.enable": "false"})

    async def test() -> None:
        await with_too_few(rig)
        assert await produce(rig, 0) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        await rig.change("t", isr=[1, 2])
        assert await produce(rig, 1) == (ErrorCode.NONE, 0)
        assert await produce(rig, 0) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        await rig.elect("t", 2, [1, 2])
        assert await produce(rig, 5, broker=2) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)

    rig.run(test)


def test_with_the_switch_off_any_sequence_is_a_first_one() -> None:
    rig = ReplicaRig(2, properties={"odradek.ordered.producers.enable": "false"})

    async def test() -> None:
        await rig.create_topic("t", [[1, 2]])
        await rig.elect("t", 2, [2])
        assert await produce(rig, 3, broker=2) == (ErrorCode.NONE, 0)

    rig.run(test)


def test_a_broker_that_did_not_know_that_the_partition_is_its_own() -> None:
    rig = ReplicaRig(2)

    async def test() -> None:
        rig.brokers[2].informed = False
        await rig.create_topic("t", [[2, 1]])
        assert (await produce(rig, 0, broker=2))[0] is ErrorCode.UNKNOWN_TOPIC_ID
        await rig.inform(2)
        assert (await produce(rig, 1, broker=2))[0] is ErrorCode.UNKNOWN_TOPIC_ID
        assert await produce(rig, 0, broker=2) == (ErrorCode.NONE, 0)
        assert await produce(rig, 1, broker=2) == (ErrorCode.NONE, 1)

    rig.run(test)


def test_nobody_waits_for_one_that_does_not_come_again() -> None:
    rig = ReplicaRig(2)

    async def test() -> None:
        await with_too_few(rig)
        assert await produce(rig, 5) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        await rig.change("t", isr=[1, 2])
        assert await produce(rig, 0, epoch=1) == (ErrorCode.NONE, 0), "another epoch begins anew"
        await asyncio.sleep(6)
        assert (await produce(rig, 6))[0] is ErrorCode.INVALID_PRODUCER_EPOCH
        assert len(rig.brokers[1].replicas.refused_batches) == 0

    rig.run(test)


def test_all_are_forgotten_whoever_asks_next() -> None:
    rig = ReplicaRig(2)

    async def test() -> None:
        await with_too_few(rig)
        assert await produce(rig, 5) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        await rig.change("t", isr=[1, 2])
        await asyncio.sleep(6)
        assert await produce(rig, 0, epoch=1) == (ErrorCode.NONE, 0)
        assert len(rig.brokers[1].replicas.refused_batches) == 0

    rig.run(test)
