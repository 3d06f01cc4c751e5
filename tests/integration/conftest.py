"""Node processes for tests of what only a process can show: signals, files, sockets, memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from bench import wire
from bench.cells import wait_for_partitions
from bench.servers import Server
from tests.compat.brokers import new_server

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
