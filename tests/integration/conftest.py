"""Node processes for tests of what only a process can show: signals, files, sockets, memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from bench.servers import Server
from tests.compat.brokers import created_topic, new_server
from tests.integration.cli import Cli

from odradek.testing import running_node


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A broker process that the tests of one file share."""
    with new_server() as running:
        yield running


@pytest.fixture
def new_topic(server: Server) -> Callable[..., str]:
    """Makes a topic and waits until its partitions answer."""

    def make(partitions: int = 1, **configs: str) -> str:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        return created_topic(server, partitions, settings)

    return make


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """The command line with a node that the tests of one file share."""
    with running_node() as node:
        yield Cli(node.bootstrap_servers, tmp_path_factory.mktemp("home"))
