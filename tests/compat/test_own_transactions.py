"""Transactions of Odradek's own client against Apache Kafka, at every `transaction.version` there is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from bench.apache_kafka import ApacheKafka
from bench.servers import Server
from tests.compat import maven

pytest.register_assert_rewrite("tests.integration.client_cases", "tests.integration.transaction_cases")

from tests.integration.transaction_cases import CASES, Case  # noqa: E402

from odradek.client.admin.cluster import UpgradeType  # noqa: E402
from odradek.client.producer.transactions import FEATURE  # noqa: E402
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

    async def lower(level: int) -> None:
        async with connect(kafka.bootstrap).admin() as admin:
            if level < 2:
                outcomes = await admin.update_features({FEATURE: level}, upgrade_type=UpgradeType.SAFE_DOWNGRADE)
                assert outcomes == {FEATURE: None}
            for _ in range(200):
                finalized = (await admin.describe_features()).finalized_features
                if sum(each.max_version_level for each in finalized if each.name == FEATURE) == level:
                    return
                await asyncio.sleep(0.05)
            raise AssertionError(f"{FEATURE} did not become {level}")

    asyncio.run(lower(request.param))
    return int(request.param)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_case(case: Case, kafka: Server, level: int) -> None:
    name = f"{case.__name__.replace('_', '-')}-{level}"
    asyncio.run(case(connect(kafka.bootstrap), name))
