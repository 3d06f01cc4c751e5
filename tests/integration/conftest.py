"""Node processes for tests of what only a process can show: signals, files, sockets, memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from bench import wire
from bench.cells import wait_for_partitions
from bench.servers import Server
from tests.compat.brokers import new_server
from tests.integration.cli import Cli

from odradek.testing import running_node

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A broker process that the tests of one file share."""
    with new_server() as running:
        yield running


@pytest.fixture
def new_topic(server: Server) -> Callable[..., str]:
    """Makes a topic and waits until its partitions answer."""

    def make(partitions: int = 1, **configs: str) -> str:
        name = f"topic-{next(_numbers)}"
        with wire.Connection(server.port) as connection:
            settings = {key.replace("_", "."): value for key, value in configs.items()}
            assert wire.create_topic(connection, name, partitions, settings) == 0
            wait_for_partitions(connection, name, partitions)
        return name

    return make


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """The command line with a node that the tests of one file share."""
    with running_node() as node:
        yield Cli(node.bootstrap_servers, tmp_path_factory.mktemp("home"))
