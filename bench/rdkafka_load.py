"""Load from librdkafka, through confluent-kafka. What Python costs here is paid by the client, not by the broker."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

QUEUED_MESSAGES = 200_000
POLL_EVERY = 2_000
READ_AT_ONCE = 10_000
GIVE_UP_S = 120.0


def produce(
    bootstrap: str, topic: str, *, partitions: int, records: int, payloads: list[bytes], settings: dict[str, str]
) -> float:
    """Send the payloads in turn, round robin over the partitions; the seconds until all are acknowledged."""
    failures: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "queue.buffering.max.messages": QUEUED_MESSAGES,
            "queue.buffering.max.kbytes": 1 << 19,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: failures.append(error),
            **settings,
        }
    )
    started = time.monotonic()
    for number in range(records):
        while True:
            try:
                producer.produce(topic, payloads[number % len(payloads)], partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.01)
        if number % POLL_EVERY == 0:
            producer.poll(0)
    left = producer.flush(GIVE_UP_S)
    if left or failures:
        raise RuntimeError(f"{left} records not delivered, {len(failures)} failed: {failures[:1]}")
    return time.monotonic() - started


def consume(bootstrap: str, topic: str, *, partitions: int, records: int, settings: dict[str, str]) -> float:
    """Read that many records from the beginning; the seconds it took."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 10,
            **settings,
        }
    )
    started = time.monotonic()
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        read = 0
        while read < records:
            for message in consumer.consume(min(READ_AT_ONCE, records - read), 1.0):
                if message.error() is not None:
                    raise RuntimeError(f"consumer: {message.error()}")
                read += 1
            if time.monotonic() - started > GIVE_UP_S:
                raise RuntimeError(f"only {read} of {records} records came")
        return time.monotonic() - started
    finally:
        consumer.close()
