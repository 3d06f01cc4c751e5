"""Transactions of the client library against a node in a process of its own, at every `transaction.version`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.integration.client_cases", "tests.integration.transaction_cases")

from tests.integration.transaction_cases import CASES, Case, lower_transaction_version  # noqa: E402

from odradek.clients import connect  # noqa: E402
from odradek.testing import RunningNode, running_node  # noqa: E402


@pytest.fixture(scope="module")
def node() -> Iterator[RunningNode]:
    properties = {
        "group.initial.rebalance.delay.ms": "0",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    with running_node(in_process=False, properties=properties) as running:
        yield running


@pytest.fixture(scope="module", params=[2, 1, 0], ids=lambda level: f"TV{level}")
def level(node: RunningNode, request: pytest.FixtureRequest) -> int:
    asyncio.run(lower_transaction_version(connect(node.bootstrap_servers), request.param))
    return int(request.param)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_case(case: Case, node: RunningNode, level: int) -> None:
    asyncio.run(case(connect(node.bootstrap_servers), f"{case.__name__.replace('_', '-')}-{level}"))
