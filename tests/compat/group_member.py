"""A member of a group as a process of its own, so that it can be killed: says what it owns and what it reads.

`python -m tests.compat.group_member CLIENT BOOTSTRAP GROUP TOPIC [name=value…]`

Names: strategy, instance, session_ms, protocol (`consumer` for that of KIP-848).

Lines on stdout: `owns 0,2` whenever that changes, `read PARTITION OFFSET` after a record's offset was committed.
It leaves the group and exits when its stdin ends. `java/GroupMember.java` is the same program in Java.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterable
from typing import Any

POLL_S = 0.05


class Voice:
    """Says what changed, and hears when to stop."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._owned: tuple[int, ...] | None = None
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        sys.stdin.read()
        self.stopping.set()

    def owns(self, partitions: Iterable[int]) -> None:
        owned = tuple(sorted(partitions))
        if owned != self._owned:
            self._owned = owned
            print("owns", ",".join(map(str, owned)), flush=True)

    def read(self, partition: int, offset: int) -> None:
        print("read", partition, offset, flush=True)


def confluent(voice: Voice, bootstrap: str, group: str, topic: str, settings: dict[str, str]) -> None:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **_confluent_protocol(settings),
            "reconnect.backoff.max.ms": 500,
            **({"group.instance.id": settings["instance"]} if "instance" in settings else {}),
        }
    )
    consumer.subscribe([topic])
    while not voice.stopping.is_set():
        message = consumer.poll(POLL_S)
        voice.owns(each.partition for each in consumer.assignment())
        if message is None or message.error() is not None:
            continue
        try:
            consumer.commit(message, asynchronous=False)
        except confluent_kafka.KafkaException:
            continue  # The partition was taken away meanwhile; its next owner reads the record again.
        voice.read(message.partition(), message.offset())
    consumer.close()


def _confluent_protocol(settings: dict[str, str]) -> dict[str, Any]:
    if settings.get("protocol") == "consumer":
        return {"group.protocol": "consumer"}
    return {
        "session.timeout.ms": int(settings["session_ms"]),
        "heartbeat.interval.ms": 300,
        "partition.assignment.strategy": settings["strategy"],
    }


def kafka_python(voice: Voice, bootstrap: str, group: str, topic: str, settings: dict[str, str]) -> None:
    import kafka
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.errors import KafkaError, RetriableError

    assignors: dict[str, Any] = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=settings.get("instance"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=int(settings["session_ms"]),
        heartbeat_interval_ms=300,
        partition_assignment_strategy=[assignors[settings["strategy"]]],
        reconnect_backoff_max_ms=500,
    )
    while not voice.stopping.is_set():
        try:
            batches = consumer.poll(timeout_ms=int(POLL_S * 1000))
        except RetriableError:
            # Whoever looks for the coordinator waits for new metadata, too, and kafka-python (3.0.12) expects nothing
            # but a timeout there: if that request fails, poll raises why. A node that starts does this to it, as it
            # closes connections until it serves, and so may any proxy before a node that is away.
            continue
        voice.owns(each.partition for each in consumer.assignment())
        for partition, records in batches.items():
            for record in records:
                try:
                    consumer.commit({partition: kafka.OffsetAndMetadata(record.offset + 1, "", -1)})
                except KafkaError:
                    break
                voice.read(record.partition, record.offset)
    consumer.close()


def aio(voice: Voice, bootstrap: str, group: str, topic: str, settings: dict[str, str]) -> None:
    asyncio.run(_aiokafka(voice, bootstrap, group, topic, settings))


async def _aiokafka(voice: Voice, bootstrap: str, group: str, topic: str, settings: dict[str, str]) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from aiokafka.errors import KafkaError

    assignors: dict[str, Any] = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=settings.get("instance"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=int(settings["session_ms"]),
        heartbeat_interval_ms=300,
        partition_assignment_strategy=(assignors[settings["strategy"]],),
    )
    await consumer.start()
    while not voice.stopping.is_set():
        batches = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
        voice.owns(each.partition for each in consumer.assignment())
        for partition, records in batches.items():
            for record in records:
                try:
                    await consumer.commit({partition: record.offset + 1})
                except KafkaError:
                    break
                voice.read(record.partition, record.offset)
    await consumer.stop()


MEMBERS = {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aio}


def main() -> None:
    client, bootstrap, group, topic, *words = sys.argv[1:]
    settings = {"strategy": "range", "session_ms": "2000"} | dict(word.split("=", 1) for word in words)
    MEMBERS[client](Voice(), bootstrap, group, topic, settings)


if __name__ == "__main__":
    main()
