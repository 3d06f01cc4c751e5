"""Connections that cost nothing while they do nothing, and readers that never read."""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from bench import wire
from bench.measure import memory_mib
from bench.servers import Server
from tests.compat.brokers import IS_KAFKA, new_server, running
from tests.compat.patience import eventually

IDLE_CONNECTIONS = 2_000
pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(IS_KAFKA, reason="the memory of a JVM is its heap, whatever it holds"),
]


def test_two_thousand_idle_connections(server: Server) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = IDLE_CONNECTIONS + 200
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"NOT TESTED: 2,000 idle connections need {wanted} open files, and only {hard} are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted) if soft != resource.RLIM_INFINITY else soft, hard))
    before, _ = memory_mib(server.pid)
    with ExitStack() as stack:
        connections = [stack.enter_context(wire.Connection(server.port)) for _ in range(IDLE_CONNECTIONS)]
        for connection in connections:
            assert connection.request(wire.API_VERSIONS, 0, b"").int16() == 0
        during, _ = memory_mib(server.pid)
        assert during - before < 20, f"{before:.1f} MiB became {during:.1f} MiB"
        started = time.monotonic()
        with wire.Connection(server.port) as another:
            assert wire.brokers_known(another) == 1
        assert time.monotonic() - started < 2
        assert all(wire.brokers_known(connection) == 1 for connection in connections[::100])


def fill(server: Server, topic: str, megabytes: int) -> None:
    batch = wire.record_batch([b"x" * 1_000] * 900, timestamp_ms=1_700_000_000_000)
    with wire.Connection(server.port) as connection:
        for _ in range(megabytes):
            answer = connection.request(wire.PRODUCE, 7, wire.produce_body(topic, [(0, batch)], acks=1))
            assert not wire.produce_errors(answer)[0][1]


def test_a_reader_that_never_reads_its_fetches(server: Server, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    fill(server, topic, 30)
    before, _ = memory_mib(server.pid)
    with ExitStack() as stack:
        for _ in range(20):
            connection = stack.enter_context(wire.Connection(server.port))
            body = wire.fetch_body(topic, [(0, 0)], max_bytes=20_000_000)
            send_without_reading(connection, wire.frame(wire.FETCH, 11, 1, body), 200)
        time.sleep(1.0)
        during, _ = memory_mib(server.pid)
        assert during - before < 60, f"20 readers that do not read: {before:.1f} MiB became {during:.1f} MiB"
        with wire.Connection(server.port) as another:
            started = time.monotonic()
            assert wire.brokers_known(another) == 1
            assert time.monotonic() - started < 2


def test_a_writer_that_never_reads_its_answers(server: Server, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    before, _ = memory_mib(server.pid)
    batch = wire.record_batch([b"y" * 1_000], timestamp_ms=1_700_000_000_000)
    ask = wire.frame(wire.METADATA, 5, 1, wire.array([]) + b"\x00")
    write = wire.frame(wire.PRODUCE, 7, 1, wire.produce_body(topic, [(0, batch)], acks=-1))
    with ExitStack() as stack:
        for frame in (ask, write) * 5:
            connection = stack.enter_context(wire.Connection(server.port))
            send_without_reading(connection, frame, 20_000)
        time.sleep(0.5)
        during, _ = memory_mib(server.pid)
        assert during - before < 60, f"10 writers that do not read: {before:.1f} MiB became {during:.1f} MiB"
        with wire.Connection(server.port) as another:
            assert wire.brokers_known(another) == 1


def send_without_reading(connection: wire.Connection, frame: bytes, count: int) -> None:
    """Send until all is sent or the other side takes no more."""
    connection.socket.settimeout(0.5)
    with contextlib.suppress(TimeoutError):
        for _ in range(count):
            connection.socket.sendall(frame)


def test_max_connections(tmp_path: Path) -> None:
    with running(new_server(tmp_path, properties={"max.connections": "5"})) as small, ExitStack() as stack:
        served = [stack.enter_context(wire.Connection(small.port)) for _ in range(5)]
        assert [wire.brokers_known(connection) for connection in served] == [1] * 5
        with wire.Connection(small.port) as one_too_many, pytest.raises((ConnectionError, wire.ConnectionClosed)):
            wire.brokers_known(one_too_many)
        served.pop().socket.close()
        eventually(lambda: is_served(small), True)
        assert [wire.brokers_known(connection) for connection in served] == [1] * 4
        assert "Traceback" not in small.log_tail()


def is_served(server: Server) -> bool:
    try:
        with wire.Connection(server.port) as connection:
            return wire.brokers_known(connection) == 1
    except (ConnectionError, wire.ConnectionClosed):
        return False
