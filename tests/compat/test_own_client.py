"""Odradek's own client against Apache Kafka, beside the Java client, and in one group with other clients."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Iterator

import pytest
from bench.servers import Server
from tests.compat.brokers import new_server
from tests.compat.java_programs import java_run
from tests.compat.members import QUICK_GROUPS, Member

pytest.register_assert_rewrite("tests.integration.client_cases")

from tests.integration.client_cases import CASES, Case  # noqa: E402

from odradek.client import Consumer  # noqa: E402
from odradek.client.producer.partitioners import murmur2, partition_of_key  # noqa: E402
from odradek.clients import connect  # noqa: E402

pytestmark = pytest.mark.compat
JAVA = pytest.mark.java
PARTITIONS = 6


@JAVA
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_case_against_apache_kafka(case: Case, apache_kafka: Server) -> None:
    asyncio.run(case(connect(apache_kafka.bootstrap)))


@JAVA
def test_keys_land_where_the_java_client_sends_them() -> None:
    draw = random.Random(2)
    keys = [draw.randbytes(length) for length in range(300)]
    keys += [draw.randbytes(draw.randrange(40)) for _ in range(2_000)]
    counts = [1, 2, 3, 7, 50, 1_000]
    lines = "\n".join([" ".join(map(str, counts)), *[base64.b64encode(key).decode() for key in keys]]) + "\n"
    told = java_run("KeyPartitions", given=lines)
    expected = [[int(number) for number in line.split()] for line in told.stdout.splitlines()]
    assert len(expected) == len(keys)
    for key, (hashed, *places) in zip(keys, expected, strict=True):
        assert murmur2(key) == hashed & 0xFFFFFFFF
        assert [partition_of_key(key, count) for count in counts] == places


@pytest.fixture(scope="module")
def group_server() -> Iterator[Server]:
    with new_server(properties=QUICK_GROUPS) as running:
        yield running


STRANGERS = [
    pytest.param(client, strategy, id=f"{client}-{strategy}", marks=[JAVA] if client == "java" else [])
    for client in ("java", "confluent-kafka", "kafka-python")
    for strategy in ("range", "roundrobin", "cooperative-sticky")
]


@pytest.mark.parametrize("we_come_first", [True, False], ids=["we lead", "they lead"])
@pytest.mark.parametrize(("client", "strategy"), STRANGERS)
def test_a_group_with_another_client(client: str, strategy: str, we_come_first: bool, group_server: Server) -> None:
    """Whoever comes first divides the partitions, so each must understand what the other says."""
    topic = f"mixed-{client}-{strategy}-{we_come_first}".lower()
    strangers: list[Member] = []

    def stranger_joins() -> None:
        strangers.append(Member(client, group_server.bootstrap, topic, topic, strategy=strategy, session_ms="6000"))

    async def mix() -> None:
        own = connect(group_server.bootstrap)
        async with own.admin() as admin:
            await admin.create_topic(topic, partitions=PARTITIONS, replication_factor=1)
        settings = {
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": strategy,
            "heartbeat.interval.ms": 300,
            "session.timeout.ms": 6_000,
        }
        if not we_come_first:
            stranger_joins()
            await shared(None, [PARTITIONS])
        async with own.consumer(settings) as consumer:
            consumer.subscribe([topic])
            if we_come_first:
                await shared(consumer, [PARTITIONS])
                stranger_joins()
            await shared(consumer, [PARTITIONS // 2, PARTITIONS // 2])
        await shared(None, [PARTITIONS])

    async def shared(consumer: Consumer | None, expected: list[int]) -> None:
        """Until everything is owned once, by shares of the sizes expected."""
        for _ in range(600):
            ours = []
            if consumer is not None:
                await consumer.poll(50)
                ours = [each.partition for each in consumer.assignment]
            else:
                await asyncio.sleep(0.05)
            theirs = [sorted(each.owned or ()) for each in strangers]
            held = [*ours, *[index for some in theirs for index in some]]
            shares = [len(some) for some in [ours, *theirs] if some]
            if sorted(held) == list(range(PARTITIONS)) and shares == expected:
                return
        raise AssertionError(f"we own {ours}, {strangers}")

    try:
        asyncio.run(mix())
    finally:
        for stranger in strangers:
            stranger.kill()
