"""confluent-kafka, kafka-python and aiokafka: administration, offsets by time, topics that come into being by use."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from bench.servers import Server
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as KafkaPythonNewTopic
from tests.compat.clients import CONFLUENT, KAFKA_PYTHON, PYTHON_CLIENTS, Client, ProducerSettings, Record
from tests.compat.patience import eventually

pytestmark = pytest.mark.compat

BASE_MS = 1_700_000_000_000
TIMEOUT_S = 30


@pytest.fixture
def five_records(server: Server, new_topic: Callable[..., str]) -> str:
    """A topic whose third record is its latest."""
    topic = new_topic(2)
    records = [Record(0, BASE_MS + stamp, None, b"%d" % stamp) for stamp in (10, 20, 90, 40, 50)]
    for record in records:
        CONFLUENT.produce(server.bootstrap, topic, [record], ProducerSettings())
    return topic


def test_confluent_admin(server: Server) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    name = f"confluent-admin-{os.getpid()}"
    admin.create_topics([NewTopic(name, 2, 1)], operation_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)
    with pytest.raises(confluent_kafka.KafkaException) as again:
        admin.create_topics([NewTopic(name, 2, 1)])[name].result(TIMEOUT_S)
    assert again.value.args[0].code() == confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS
    with pytest.raises(confluent_kafka.KafkaException) as too_many:
        admin.create_topics([NewTopic(f"{name}-x", 1, 3)])[f"{name}-x"].result(TIMEOUT_S)
    assert too_many.value.args[0].code() == confluent_kafka.KafkaError.INVALID_REPLICATION_FACTOR
    admin.create_partitions([NewPartitions(name, 4)])[name].result(TIMEOUT_S)
    named = confluent_kafka.TopicCollection([name])
    eventually(lambda: len(admin.describe_topics(named)[name].result(TIMEOUT_S).partitions), 4)
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert [node.id for node in cluster.nodes] == [1]
    assert cluster.controller.id == 1
    admin.delete_topics([name])[name].result(TIMEOUT_S)
    eventually(lambda: name in admin.list_topics(timeout=TIMEOUT_S).topics, False)


def test_confluent_offsets_by_time_and_delete_records(server: Server, five_records: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    partition = confluent_kafka.TopicPartition(five_records, 0)

    def listed(spec: OffsetSpec) -> int:
        offset: int = admin.list_offsets({partition: spec})[partition].result(TIMEOUT_S).offset
        return offset

    assert [listed(spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp())] == [
        0,
        5,
        2,
    ]
    assert listed(OffsetSpec.for_timestamp(BASE_MS + 15)) == 1
    consumer = confluent_kafka.Consumer({"bootstrap.servers": server.bootstrap, "group.id": "unused"})
    try:
        assert consumer.get_watermark_offsets(partition, TIMEOUT_S) == (0, 5)
        asked = confluent_kafka.TopicPartition(five_records, 0, BASE_MS + 21)
        assert consumer.offsets_for_times([asked], TIMEOUT_S)[0].offset == 2
    finally:
        consumer.close()
    deleted = admin.delete_records([confluent_kafka.TopicPartition(five_records, 0, 3)])
    assert next(iter(deleted.values())).result(TIMEOUT_S).low_watermark == 3
    assert listed(OffsetSpec.earliest()) == 3


def test_kafka_python_admin_and_offsets(server: Server, five_records: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    name = f"kafka-python-admin-{os.getpid()}"
    try:
        admin.create_topics([KafkaPythonNewTopic(name, num_partitions=3, replication_factor=1)])
        eventually(lambda: [len(topic["partitions"]) for topic in admin.describe_topics([name])], [3])
        admin.delete_topics([name])
        eventually(lambda: name in admin.list_topics(), False)
    finally:
        admin.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=server.bootstrap, group_id=None)
    try:
        partition = kafka.TopicPartition(five_records, 0)
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 5}
        found = consumer.offsets_for_times({partition: BASE_MS + 21})[partition]
        assert (found.offset, found.timestamp) == (2, BASE_MS + 90)
    finally:
        consumer.close()


def test_aiokafka_admin_and_offsets(server: Server, five_records: str) -> None:
    name = f"aiokafka-admin-{os.getpid()}"

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=server.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([AioNewTopic(name, num_partitions=3, replication_factor=1)])
            await admin.delete_topics([name])
        finally:
            await admin.close()
        consumer = AIOKafkaConsumer(bootstrap_servers=server.bootstrap, group_id=None)
        await consumer.start()
        try:
            partition = AioTopicPartition(five_records, 0)
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 5}
            found = (await consumer.offsets_for_times({partition: BASE_MS + 21}))[partition]
            assert (found.offset, found.timestamp) == (2, BASE_MS + 90)
        finally:
            await consumer.stop()

    asyncio.run(run())


@pytest.mark.parametrize("client", PYTHON_CLIENTS, ids=repr)
def test_a_topic_comes_into_being_by_use(server: Server, client: Client) -> None:
    topic = f"by-use-{client.name}-{os.getpid()}"
    records = [Record(0, BASE_MS + number, None, b"%d" % number) for number in range(10)]
    assert client.produce(server.bootstrap, topic, records, ProducerSettings()) == list(range(10))
    assert client.consume(server.bootstrap, topic, {0: 0}, 10) == list(enumerate(records))


def test_log_append_time_is_the_brokers(server: Server, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    sent = [Record(0, BASE_MS, None, b"%d" % number) for number in range(5)]
    CONFLUENT.produce(server.bootstrap, topic, sent, ProducerSettings(compression="lz4"))
    seen = KAFKA_PYTHON.consume(server.bootstrap, topic, {0: 0}, 5)
    assert [record.value for _, record in seen] == [record.value for record in sent]
    assert all(before <= record.timestamp_ms <= int(time.time() * 1000) for _, record in seen)


def test_a_waiting_fetch_is_answered_as_soon_as_a_record_comes(server: Server, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1)

    async def run() -> float:
        consumer = AIOKafkaConsumer(bootstrap_servers=server.bootstrap, group_id=None, fetch_max_wait_ms=20_000)
        producer = AIOKafkaProducer(bootstrap_servers=server.bootstrap)
        await consumer.start()
        await producer.start()
        try:
            partition = AioTopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            waiting = asyncio.ensure_future(consumer.getone())
            await asyncio.sleep(0.5)
            started = time.monotonic()
            await producer.send_and_wait(topic, b"wake up", partition=0)
            message = await asyncio.wait_for(waiting, TIMEOUT_S)
            assert message.value == b"wake up"
            return time.monotonic() - started
        finally:
            await producer.stop()
            await consumer.stop()

    assert asyncio.run(run()) < 5


def test_a_record_over_the_limit_is_refused(server: Server, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1, max_message_bytes="1000")
    outcomes: list[confluent_kafka.KafkaError | None] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": False})
    producer.produce(topic, b"x" * 5_000, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert [error.code() for error in outcomes if error is not None] == [confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE]
