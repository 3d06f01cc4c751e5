"""The producer against a broker that checks sequences as Kafka does, and misbehaves when told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.client.scripted import Ports, ScriptedBroker, play, settings

from odradek.client.errors import BufferExhausted, DeliveryTimedOut
from odradek.client.producer import Producer
from odradek.client.producer.producer import MAX_IN_FLIGHT_IDEMPOTENT
from odradek.configdef import ConfigError
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.init_producer_id import InitProducerIdResponse
from odradek.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.protocol.records.batch import BatchHeader, decode_records, read_header

Refuse = Callable[[BatchHeader], ErrorCode | None]


class Log:
    """The broker's partitions: what was written, and the last sequence and epoch of the one producer there is."""

    def __init__(self, broker: ScriptedBroker, refuse: Refuse = lambda header: None) -> None:
        self.written: dict[int, list[bytes | None]] = {}
        self.batches: list[BatchHeader] = []
        self.refuse = refuse
        self.delay_s = 0.0
        self.next: dict[int, tuple[int, int]] = {}
        """Epoch and next sequence by partition."""
        broker.topics = {"t": 3}
        broker.answers[ApiKey.PRODUCE] = self.produce

    async def produce(self, request: ProduceRequest) -> ProduceResponse | None:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        answers = []
        for topic in request.topic_data:
            for data in topic.partition_data:
                assert isinstance(data.records, memoryview)
                code, offset = self.append(data.index, data.records)
                answers.append(PartitionProduceResponse(index=data.index, error_code=code, base_offset=offset))
        (topic,) = request.topic_data
        if request.acks == 0:
            return None
        answered = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        return ProduceResponse(responses=[answered])

    def append(self, partition: int, batch: memoryview) -> tuple[ErrorCode, int]:
        header = read_header(batch)
        refused = self.refuse(header)
        if refused is not None:
            return refused, -1
        log = self.written.setdefault(partition, [])
        if header.producer_id >= 0:
            epoch, expected = self.next.get(partition, (header.producer_epoch, header.base_sequence))
            if header.producer_epoch < epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            expected = 0 if header.producer_epoch > epoch else expected
            if header.base_sequence != expected:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self.next[partition] = (header.producer_epoch, expected + header.records_count)
        offset = len(log)
        log += [record.value for record in decode_records(batch)]
        self.batches.append(header)
        return ErrorCode.NONE, offset


def numbered(count: int) -> list[bytes | None]:
    return [b"%d" % number for number in range(count)]


async def send_all(producer: Producer, count: int, **more: Any) -> list[int]:
    receipts = [await producer.submit("t", b"%d" % number, partition=0, **more) for number in range(count)]
    return [metadata.offset for metadata in await asyncio.gather(*receipts)]


def test_records_are_batched_by_size_and_by_time() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        log = Log(broker)
        async with Producer(ports, settings(linger_ms=50, batch_size=500)) as producer:
            before = ports.clock.monotonic_ms()
            assert await send_all(producer, 100) == list(range(100))
            assert 3 <= len(log.batches) < 30, "full batches do not wait, and are not sent one by one"
            assert 50 <= ports.clock.monotonic_ms() - before < 100, "the last one is not full, and lingers"
            log.batches.clear()
            await producer.submit("t", b"x", partition=0)
            before = ports.clock.monotonic_ms()
            await producer.flush()
            assert ports.clock.monotonic_ms() - before < 50, "a flush does not linger"
        assert log.written[0] == [*numbered(100), b"x"]

    play(test)


def test_a_batch_that_is_refused_for_now_is_sent_again_and_order_holds() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        refused = 0

        def refuse(header: BatchHeader) -> ErrorCode | None:
            nonlocal refused
            refused += 1
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if refused % 3 == 1 else None

        log = Log(broker, refuse)
        metadata_before = broker.count(ApiKey.METADATA)
        async with Producer(ports, settings(batch_size=100, linger_ms=1)) as producer:
            assert await send_all(producer, 60) == list(range(60))
        assert log.written[0] == numbered(60)
        assert refused > 3
        assert broker.count(ApiKey.METADATA) > metadata_before + 1, "asks who leads now"

    play(test)


def test_a_record_that_is_refused_for_good_fails_alone() -> None:
    """The next batch then has a gap before it, and goes on under the next epoch (KIP-360)."""

    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        log = Log(broker)
        async with Producer(ports, settings(batch_size=1, linger_ms=0)) as producer:
            assert await send_all(producer, 3) == [0, 1, 2]
            log.refuse = lambda header: ErrorCode.MESSAGE_TOO_LARGE if header.base_sequence == 3 else None
            receipts = [await producer.submit("t", b"%d" % number, partition=0) for number in range(3, 7)]
            outcomes = await asyncio.gather(*receipts, return_exceptions=True)
        failure = outcomes[0]
        assert isinstance(failure, KafkaError)
        assert failure.code is ErrorCode.MESSAGE_TOO_LARGE
        assert not any(isinstance(outcome, BaseException) for outcome in outcomes[1:])
        assert log.written[0] == [b"0", b"1", b"2", b"4", b"5", b"6"]
        assert [header.producer_epoch for header in log.batches] == [0, 0, 0, 1, 1, 1]
        assert [header.base_sequence for header in log.batches[3:]] == [0, 1, 2]

    play(test)


def test_a_broker_that_has_forgotten_the_producer_gets_a_new_epoch() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        log = Log(broker)
        async with Producer(ports, settings(linger_ms=0)) as producer:
            await send_all(producer, 2)
            log.refuse = lambda header: ErrorCode.UNKNOWN_PRODUCER_ID if header.producer_epoch == 0 else None
            await producer.send("t", b"again", partition=0)
        assert log.written[0] == [b"0", b"1", b"again"]
        assert (log.batches[-1].producer_epoch, log.batches[-1].base_sequence) == (1, 0)

    play(test)


def test_delivery_has_a_time_limit() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        Log(broker, lambda header: ErrorCode.NOT_ENOUGH_REPLICAS)
        limits = settings(delivery_timeout_ms=2_000, request_timeout_ms=1_000, linger_ms=0)
        async with Producer(ports, limits) as producer:
            before = ports.clock.monotonic_ms()
            with pytest.raises(DeliveryTimedOut, match="NOT_ENOUGH_REPLICAS"):
                await producer.send("t", b"x")
            assert 2_000 <= ports.clock.monotonic_ms() - before < 3_500

    play(test)


def test_retries_may_be_limited() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        log = Log(broker, lambda header: ErrorCode.NOT_ENOUGH_REPLICAS)
        async with Producer(ports, settings(retries=2, linger_ms=0)) as producer:
            with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS"):
                await producer.send("t", b"x")
        assert broker.count(ApiKey.PRODUCE) == 3
        assert log.batches == []

    play(test)


def test_full_memory_makes_senders_wait_and_then_gives_up() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        log = Log(broker)
        log.delay_s = 1.0
        async with Producer(ports, settings(buffer_memory=2_000, max_block_ms=1_500, linger_ms=0)) as producer:
            before = ports.clock.monotonic_ms()
            receipts = [await producer.submit("t", bytes(900), partition=0) for _ in range(4)]
            assert 1_000 <= ports.clock.monotonic_ms() - before < 2_500, "the third waits for the first's room"
            await asyncio.gather(*receipts)
            log.delay_s = 10.0
            receipts = [await producer.submit("t", bytes(900), partition=0) for _ in range(2)]
            with pytest.raises(BufferExhausted):
                await producer.submit("t", bytes(900), partition=0)
            with pytest.raises(BufferExhausted):
                await producer.submit("t", bytes(3_000), partition=0)
            await asyncio.gather(*receipts)
            await producer.send("t", bytes(900), partition=0)
        assert len(log.written[0]) == 7

    play(test)


def test_requests_in_flight_are_limited() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        log = Log(broker)
        log.delay_s = 0.1
        async with Producer(ports, settings(batch_size=1, linger_ms=0)) as producer:
            receipts = [await producer.submit("t", b"%d" % number, partition=0) for number in range(12)]
            await asyncio.sleep(0.05)
            connection = await producer.cluster.connection(1)
            assert connection.in_flight == 1, "what a broker does not know yet is sent alone"
            await asyncio.sleep(0.1)
            assert connection.in_flight == MAX_IN_FLIGHT_IDEMPOTENT
            await asyncio.gather(*receipts)
        assert log.written[0] == numbered(12)

    play(test)


def test_without_acks_nobody_answers() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        log = Log(broker)
        async with Producer(ports, settings(acks="0")) as producer:
            metadata = await producer.send("t", b"x", partition=1)
            assert metadata.offset == -1
            await asyncio.sleep(0.1)
        assert log.written == {1: [b"x"]}
        assert broker.count(ApiKey.INIT_PRODUCER_ID) == 0

    play(test)


def test_a_topic_that_does_not_exist_is_waited_for_and_then_told() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        log = Log(broker)
        async with Producer(ports, settings(max_block_ms=1_000)) as producer:
            with pytest.raises(KafkaError, match="'nowhere'"):
                await producer.send("nowhere", b"x")
            later = asyncio.ensure_future(producer.send("soon", b"x"))
            await asyncio.sleep(0.3)
            broker.topics["soon"] = 1
            assert (await later).topic == "soon"
        assert log.written == {0: [b"x"]}

    play(test)


def test_a_producer_id_that_is_refused_for_good_fails_what_waits_for_it() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        Log(broker)
        refusal = InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        broker.answers[ApiKey.INIT_PRODUCER_ID] = lambda request: refusal
        async with Producer(ports, settings()) as producer:
            with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED"):
                await producer.send("t", b"x")
            assert ports.clock.monotonic_ms() < 1_000

    play(test)


def test_a_broker_that_comes_late_is_waited_for() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        Log(broker)
        broker.is_up = False
        async with Producer(ports, settings()) as producer:
            sending = asyncio.ensure_future(producer.send("t", b"x", partition=0))
            await asyncio.sleep(5)
            broker.is_up = True
            assert (await sending).offset == 0

    play(test)


def test_closing_delivers_what_is_left_unless_it_takes_too_long() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        log = Log(broker)
        producer = Producer(ports, settings(linger_ms=10_000))
        receipt = await producer.submit("t", b"x", partition=0)
        await producer.close()
        assert receipt.result().offset == 0
        log.delay_s = 60
        producer = Producer(ports, settings())
        receipt = await producer.submit("t", b"y", partition=0)
        with pytest.raises(DeliveryTimedOut):
            await producer.close(timeout_ms=500)
        with pytest.raises(DeliveryTimedOut):
            await receipt

    play(test)


def test_partitions_by_hand_by_key_by_callable_and_by_turns() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        log = Log(broker)
        async with Producer(ports, settings()) as producer:
            assert (await producer.send("t", b"x", partition=2)).partition == 2
            assert (await producer.send("t", b"x", key=b"foobar")).partition == (-790332482 & 0x7FFFFFFF) % 3
            with pytest.raises(KafkaError, match="3 partitions, none is 3"):
                await producer.send("t", b"x", partition=3)
        async with Producer(
            ports, settings(), partitioner=lambda topic, key, value, count: len(key or b"") % count
        ) as p:
            assert (await p.send("t", b"x", key=b"four")).partition == 1
        async with Producer(ports, settings(partitioner_class="round-robin")) as producer:
            turns = [(await producer.send("t", b"x", key=b"same")).partition for _ in range(3)]
            assert turns == [0, 1, 2]
        assert len(log.batches) == 6

    play(test)


def test_a_record_larger_than_any_request_is_refused_at_once() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        Log(broker)
        async with Producer(ports, settings(max_request_size=1_000)) as producer:
            with pytest.raises(KafkaError) as refused:
                await producer.send("t", bytes(1_000))
            assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE

    play(test)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"acks": "1", "enable.idempotence": True}, "acks must be all"),
        ({"retries": 0, "enable.idempotence": True}, "retries"),
        ({"max.in.flight.requests.per.connection": 6, "enable.idempotence": True}, "at most 5"),
        ({"delivery.timeout.ms": 100}, "delivery.timeout.ms"),
    ],
)
def test_settings_that_contradict_each_other(given: dict[str, Any], complaint: str) -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        with pytest.raises(ConfigError, match=complaint):
            Producer(ports, settings() | given)  # type: ignore[operator]

    play(test)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(codec: str) -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        log = Log(broker)
        async with Producer(ports, settings(compression_type=codec)) as producer:
            await send_all(producer, 50, headers=[("h", b"1"), ("n", None)], timestamp_ms=5)
        assert log.written[0] == numbered(50)
        assert {header.compression.name.lower() for header in log.batches} == {codec}
        assert {(header.base_timestamp, header.max_timestamp) for header in log.batches} == {(5, 5)}

    play(test)
