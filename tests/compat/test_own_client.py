"""Odradek's own client against Apache Kafka, and beside the Java client."""

from __future__ import annotations

import asyncio
import base64
import random
import subprocess
from collections.abc import Iterator

import pytest
from bench.apache_kafka import ApacheKafka
from bench.servers import Server
from tests.compat.java_programs import java_command

pytest.register_assert_rewrite("tests.integration.client_cases")

from tests.integration.client_cases import CASES, Case  # noqa: E402

from odradek.apps.clients import connect  # noqa: E402
from odradek.client.producer.partitioners import murmur2, partition_of_key  # noqa: E402

pytestmark = [pytest.mark.compat, pytest.mark.java]


@pytest.fixture(scope="module")
def apache_kafka() -> Iterator[Server]:
    with ApacheKafka(properties={"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_case_against_apache_kafka(case: Case, apache_kafka: Server) -> None:
    asyncio.run(case(connect(apache_kafka.bootstrap)))


def test_keys_land_where_the_java_client_sends_them() -> None:
    draw = random.Random(2)
    keys = [draw.randbytes(length) for length in range(300)]
    keys += [draw.randbytes(draw.randrange(40)) for _ in range(2_000)]
    counts = [1, 2, 3, 7, 50, 1_000]
    lines = "\n".join([" ".join(map(str, counts)), *[base64.b64encode(key).decode() for key in keys]]) + "\n"
    told = subprocess.run(
        java_command("KeyPartitions"), input=lines, capture_output=True, text=True, check=True, timeout=60
    )
    expected = [[int(number) for number in line.split()] for line in told.stdout.splitlines()]
    assert len(expected) == len(keys)
    for key, (hashed, *places) in zip(keys, expected, strict=True):
        assert murmur2(key) == hashed & 0xFFFFFFFF
        assert [partition_of_key(key, count) for count in counts] == places
