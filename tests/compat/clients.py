"""Four client libraries behind one face: send these records, read those partitions.

A record that one library sent must come out of every other exactly as it went in; with one face, that is one loop.
"""

from __future__ import annotations

import asyncio
import base64
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import confluent_kafka
import kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from tests.compat.java_programs import java_run

GIVE_UP_S = 60.0
MAX_REQUEST_BYTES = 2_000_000

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Record:
    """What a producer sends and a consumer must see again."""

    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True)
class ProducerSettings:
    """How to send."""

    acks: str = "all"
    compression: str = "none"
    idempotent: bool = False
    linger_ms: int = 5
    in_flight: int = 5
    batch_bytes: int = 16_384


class Client(ABC):
    """One client library."""

    name: str
    compressions: tuple[str, ...] = ("none", "gzip", "snappy", "lz4", "zstd")

    @abstractmethod
    def produce(self, bootstrap: str, topic: str, records: Sequence[Record], how: ProducerSettings) -> list[int]:
        """Send the records in order; the offset of each (-1 with acks=0)."""

    @abstractmethod
    def consume(self, bootstrap: str, topic: str, start: dict[int, int], count: int) -> list[tuple[int, Record]]:
        """Read `count` records of the partitions from the offsets given; (offset, record) in the order they came."""

    def __repr__(self) -> str:
        return self.name


class Confluent(Client):
    """librdkafka."""

    name = "confluent-kafka"

    def produce(self, bootstrap: str, topic: str, records: Sequence[Record], how: ProducerSettings) -> list[int]:
        offsets = [-1] * len(records)
        failures: list[object] = []
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": how.acks,
                "compression.type": how.compression,
                "enable.idempotence": how.idempotent,
                "linger.ms": how.linger_ms,
                "max.in.flight": how.in_flight,
                "batch.size": how.batch_bytes,
                "message.max.bytes": MAX_REQUEST_BYTES,
            }
        )

        def delivered(index: int, error: object, message: confluent_kafka.Message) -> None:
            if error is not None:
                failures.append(error)
            offset = message.offset()
            offsets[index] = -1 if offset is None else offset

        for index, record in enumerate(records):
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=record.partition,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
                on_delivery=lambda error, message, index=index: delivered(index, error, message),
            )
            producer.poll(0)
        assert producer.flush(GIVE_UP_S) == 0
        assert not failures, failures[:3]
        return offsets

    def consume(self, bootstrap: str, topic: str, start: dict[int, int], count: int) -> list[tuple[int, Record]]:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
        )
        seen: list[tuple[int, Record]] = []
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, index, offset) for index, offset in start.items()])
            deadline = time.monotonic() + GIVE_UP_S
            while len(seen) < count and time.monotonic() < deadline:
                message = consumer.poll(0.2)
                if message is None:
                    continue
                assert message.error() is None, message.error()
                _, timestamp_ms = message.timestamp()
                headers = tuple(message.headers() or ())
                seen.append(
                    (
                        message.offset(),
                        Record(message.partition(), timestamp_ms, message.key(), message.value(), headers),
                    )
                )
            return seen
        finally:
            consumer.close()


class KafkaPython(Client):
    """The pure Python client."""

    name = "kafka-python"
    compressions = ("none", "gzip", "lz4")

    def produce(self, bootstrap: str, topic: str, records: Sequence[Record], how: ProducerSettings) -> list[int]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            acks=how.acks if how.acks == "all" else int(how.acks),
            compression_type=None if how.compression == "none" else how.compression,
            enable_idempotence=how.idempotent,
            linger_ms=how.linger_ms,
            max_in_flight_requests_per_connection=how.in_flight,
            batch_size=how.batch_bytes,
            max_request_size=MAX_REQUEST_BYTES,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            producer.flush(timeout=GIVE_UP_S)
            return [future.get(timeout=GIVE_UP_S).offset for future in futures]
        finally:
            producer.close()

    def consume(self, bootstrap: str, topic: str, start: dict[int, int], count: int) -> list[tuple[int, Record]]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False)
        seen: list[tuple[int, Record]] = []
        try:
            partitions = {index: kafka.TopicPartition(topic, index) for index in start}
            consumer.assign(list(partitions.values()))
            for index, offset in start.items():
                consumer.seek(partitions[index], offset)
            deadline = time.monotonic() + GIVE_UP_S
            while len(seen) < count and time.monotonic() < deadline:
                for batch in consumer.poll(timeout_ms=200).values():
                    for got in batch:
                        headers = tuple((name, value) for name, value in got.headers)
                        seen.append((got.offset, Record(got.partition, got.timestamp, got.key, got.value, headers)))
            return seen[:count]
        finally:
            consumer.close()


class Aiokafka(Client):
    """The asyncio client."""

    name = "aiokafka"

    def produce(self, bootstrap: str, topic: str, records: Sequence[Record], how: ProducerSettings) -> list[int]:
        async def run() -> list[int]:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                acks=how.acks if how.acks == "all" else int(how.acks),
                compression_type=None if how.compression == "none" else how.compression,
                enable_idempotence=how.idempotent,
                linger_ms=how.linger_ms,
                max_batch_size=how.batch_bytes,
                max_request_size=MAX_REQUEST_BYTES,
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        topic,
                        value=record.value,
                        key=record.key,
                        partition=record.partition,
                        timestamp_ms=record.timestamp_ms,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                sent = [await future for future in futures]
                return [-1 if metadata is None else metadata.offset for metadata in sent]
            finally:
                await producer.stop()

        return asyncio.run(run())

    def consume(self, bootstrap: str, topic: str, start: dict[int, int], count: int) -> list[tuple[int, Record]]:
        async def run() -> list[tuple[int, Record]]:
            consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False)
            await consumer.start()
            seen: list[tuple[int, Record]] = []
            try:
                partitions = {index: AioTopicPartition(topic, index) for index in start}
                consumer.assign(list(partitions.values()))
                for index, offset in start.items():
                    consumer.seek(partitions[index], offset)
                deadline = time.monotonic() + GIVE_UP_S
                while len(seen) < count and time.monotonic() < deadline:
                    for batch in (await consumer.getmany(timeout_ms=200)).values():
                        for got in batch:
                            headers = tuple((name, value) for name, value in got.headers)
                            seen.append((got.offset, Record(got.partition, got.timestamp, got.key, got.value, headers)))
                return seen[:count]
            finally:
                await consumer.stop()

        return asyncio.run(run())


class JavaClient(Client):
    """Apache Kafka's own producer and consumer, through `java/RecordPipe.java`."""

    name = "java"

    def produce(self, bootstrap: str, topic: str, records: Sequence[Record], how: ProducerSettings) -> list[int]:
        settings = {
            "acks": how.acks,
            "compression.type": how.compression,
            "enable.idempotence": str(how.idempotent).lower(),
            "linger.ms": str(how.linger_ms),
            "max.in.flight.requests.per.connection": str(how.in_flight),
            "batch.size": str(how.batch_bytes),
            "max.request.size": str(MAX_REQUEST_BYTES),
        }
        lines = self._run("produce", bootstrap, topic, settings, [_line(0, record) for record in records])
        return [int(line) for line in lines]

    def consume(self, bootstrap: str, topic: str, start: dict[int, int], count: int) -> list[tuple[int, Record]]:
        settings = {"count": str(count)}
        lines = self._run("consume", bootstrap, topic, settings, [f"{index}\t{at}" for index, at in start.items()])
        return [_parsed(line) for line in lines]

    def _run(self, mode: str, bootstrap: str, topic: str, settings: dict[str, str], given: list[str]) -> list[str]:
        words = [mode, bootstrap, topic, *(f"{name}={value}" for name, value in settings.items())]
        outcome = java_run("RecordPipe", *words, given="".join(f"{line}\n" for line in given))
        assert outcome.exit_code == 0, outcome.stderr[-3_000:]
        return outcome.stdout.splitlines()


def _line(offset: int, record: Record) -> str:
    headers = ",".join(f"{_encoded(name.encode())}={_encoded(value)}" for name, value in record.headers)
    fields = [
        str(record.partition),
        str(offset),
        str(record.timestamp_ms),
        _encoded(record.key),
        _encoded(record.value),
    ]
    return "\t".join([*fields, headers])


def _parsed(line: str) -> tuple[int, Record]:
    partition, offset, timestamp_ms, key, value, headers = line.split("\t")
    pairs = tuple(
        ((_decoded(name) or b"").decode(), _decoded(content))
        for name, content in (pair.split("=") for pair in headers.split(",") if pair)
    )
    return int(offset), Record(int(partition), int(timestamp_ms), _decoded(key), _decoded(value), pairs)


def _encoded(data: bytes | None) -> str:
    # Base64 without padding, so that "=" can part names from values; "-" stands for null.
    return "-" if data is None else base64.b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes | None:
    return None if text == "-" else base64.b64decode(text + "=" * (-len(text) % 4))


CONFLUENT, KAFKA_PYTHON, AIOKAFKA, JAVA = Confluent(), KafkaPython(), Aiokafka(), JavaClient()
PYTHON_CLIENTS: tuple[Client, ...] = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA)
