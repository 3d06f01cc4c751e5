"""The broker under test.

`COMPAT_SERVER=kafka` runs the same tests against Apache Kafka: a test that fails there is wrong, whatever Odradek does.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import wire
from bench.cells import wait_for_partitions
from bench.clusters import Cluster, Member, server_class
from bench.servers import Server

KIND = os.environ.get("COMPAT_SERVER", "odradek")
IS_KAFKA = KIND == "kafka"
_numbers = itertools.count()
CLEAN_EXIT_CODE = 143 if IS_KAFKA else 0
KEEPING = {"log.initial.task.delay.ms": "3600000"}
"""No retention while tests run: half a minute after the start it would take records that tests give old timestamps."""


def new_server(directory: Path | None = None, *, properties: dict[str, str] | None = None) -> Server:
    """A broker of the kind under test, not started."""
    return server_class(KIND)(directory, properties=KEEPING | (properties or {}))


def new_cluster(directory: Path, *, nodes: int = 3, properties: dict[str, str] | None = None) -> Cluster:
    """Combined nodes of the kind under test, not started."""
    return Cluster([Member(server_class(KIND))] * nodes, directory=directory, properties=KEEPING | (properties or {}))


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """Started on its directory, and stopped cleanly unless the block ended it otherwise."""
    server.format()
    server.spawn()
    try:
        server.wait_until_ready()
        yield server
    finally:
        code = server.stop()
    assert code in (0, 143, -9), f"exit code {code}:\n{server.log_tail()}"


def new_name() -> str:
    """Of a topic, a group or whatever else that no other test has one for."""
    return f"topic-{os.getpid()}-{next(_numbers)}"


def created_topic(server: Server, partitions: int, settings: dict[str, str], name: str = "") -> str:
    """Of a new name unless it is given one; all of its partitions answer."""
    name = name or new_name()
    with wire.Connection(server.port) as connection:
        assert wire.create_topic(connection, name, partitions, settings) == 0
        wait_for_partitions(connection, name, partitions)
    return name
