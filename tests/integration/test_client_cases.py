"""The client library against a node in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.integration.client_cases")

from tests.integration.client_cases import CASES, Case  # noqa: E402

from odradek.clients import connect  # noqa: E402
from odradek.testing import RunningNode, running_node  # noqa: E402


@pytest.fixture(scope="module")
def node() -> Iterator[RunningNode]:
    with running_node(in_process=False, properties={"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_case(case: Case, node: RunningNode) -> None:
    asyncio.run(case(connect(node.bootstrap_servers)))
