"""One broker process for all compatibility tests, and topics that no other test uses.

`COMPAT_SERVER=kafka` runs the same tests against Apache Kafka: a test that fails there is wrong, whatever Odradek does.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest
from bench import wire
from bench.cells import wait_for_partitions
from bench.servers import OdradekServer, Server
from tests.compat import maven

_numbers = itertools.count()


def new_server(**arguments: object) -> Server:
    """A broker of the kind under test, not started."""
    if os.environ.get("COMPAT_SERVER", "odradek") == "kafka":
        from bench.apache_kafka import ApacheKafka

        return ApacheKafka(**arguments)  # type: ignore[arg-type]
    return OdradekServer(**arguments)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The broker all tests share."""
    with new_server() as running:
        yield running


@pytest.fixture
def new_topic(server: Server) -> Callable[..., str]:
    """Makes a topic and waits until its partitions answer."""

    def make(partitions: int = 1, **configs: str) -> str:
        name = f"compat-{os.getpid()}-{next(_numbers)}"
        with wire.Connection(server.port) as connection:
            settings = {key.replace("_", "."): value for key, value in configs.items()}
            assert wire.create_topic(connection, name, partitions, settings) == 0
            wait_for_partitions(connection, name, partitions)
        return name

    return make


@pytest.fixture(autouse=True)
def _java_or_skip(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("java") is not None:
        maven.require_java()
