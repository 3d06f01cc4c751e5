"""Clients in Go and for Node.js against a real node; skipped, loudly, where Go or Node.js is not at hand."""

from __future__ import annotations

import pytest
from bench.servers import Server
from tests.compat import smoke
from tests.compat.go_programs import require_go
from tests.compat.members import Member
from tests.compat.node_programs import require_node

pytestmark = pytest.mark.compat

REQUIRED = {"franz-go": require_go, "kafka-go": require_go, "kafkajs": require_node, "platformatic": require_node}


@pytest.fixture(params=REQUIRED)
def client(request: pytest.FixtureRequest) -> str:
    """Its name, if what it needs is there."""
    name: str = request.param
    REQUIRED[name]()
    return name


def test_administration(client: str, group_server: Server) -> None:
    smoke.administers(client, group_server)


def test_records(client: str, group_server: Server, group_topic: str) -> None:
    smoke.produces(client, group_server, group_topic)


def test_groups(client: str, group_server: Server, group_topic: str, members: list[Member]) -> None:
    smoke.shares_a_group(client, group_server, group_topic, members)
