"""KafkaJS and @platformatic/kafka against a real node; skipped, loudly, where Node.js is not at hand."""

from __future__ import annotations

import pytest
from bench.servers import Server
from tests.compat import smoke
from tests.compat.members import Member
from tests.compat.node_programs import require_node

pytestmark = pytest.mark.compat

CLIENTS = ["kafkajs", "platformatic"]


@pytest.fixture(autouse=True)
def _node_or_skip() -> None:
    require_node()


@pytest.mark.parametrize("client", CLIENTS)
def test_administration(client: str, group_server: Server) -> None:
    smoke.administers(client, group_server)


@pytest.mark.parametrize("client", CLIENTS)
def test_records(client: str, group_server: Server, group_topic: str) -> None:
    smoke.produces(client, group_server, group_topic)


@pytest.mark.parametrize("client", CLIENTS)
def test_groups(client: str, group_server: Server, group_topic: str, members: list[Member]) -> None:
    smoke.shares_a_group(client, group_server, group_topic, members)
