"""Transactions of Odradek's own client against Apache Kafka, at every `transaction.version` there is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from bench.apache_kafka import ApacheKafka
from bench.servers import Server
from tests.compat import maven

pytest.register_assert_rewrite("tests.integration.client_cases", "tests.integration.transaction_cases")

from tests.integration.transaction_cases import CASES, Case, lower_transaction_version  # noqa: E402

from odradek.clients import connect  # noqa: E402

pytestmark = [pytest.mark.compat, pytest.mark.java]


@pytest.fixture(scope="module")
def kafka() -> Iterator[Server]:
    maven.require_java()
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "transaction.state.log.num.partitions": "3",
    }
    with ApacheKafka(properties=settings) as running:
        yield running


@pytest.fixture(scope="module", params=[2, 1, 0], ids=lambda level: f"TV{level}")
def level(kafka: Server, request: pytest.FixtureRequest) -> int:
    """The cluster's level of the feature, which is lowered step by step."""
    asyncio.run(lower_transaction_version(connect(kafka.bootstrap), request.param))
    return int(request.param)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_case(case: Case, kafka: Server, level: int) -> None:
    name = f"{case.__name__.replace('_', '-')}-{level}"
    asyncio.run(case(connect(kafka.bootstrap), name))
