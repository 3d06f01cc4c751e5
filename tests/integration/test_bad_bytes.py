"""Bytes that are no request close their connection and harm nobody else. Each case is what Apache Kafka does."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest
from bench import wire
from bench.servers import Server

REQUEST_LIMIT = 104_857_600
UNSUPPORTED_VERSION = 35
TLS_CLIENT_HELLO = bytes.fromhex("16030100d1010000cd0303") + bytes(range(200))


@pytest.fixture
def bystander(server: Server) -> Iterator[wire.Connection]:
    """A connection that behaves; it must be served before, during and after."""
    with wire.Connection(server.port, timeout_s=10) as connection:
        assert wire.brokers_known(connection) == 1
        yield connection
        assert wire.brokers_known(connection) == 1


def assert_closed(connection: wire.Connection) -> None:
    """The other side hung up without an answer."""
    connection.socket.settimeout(10)
    with contextlib.suppress(ConnectionResetError):
        assert connection.socket.recv(1) == b""


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", id="HTTP"),
        pytest.param(TLS_CLIENT_HELLO, id="TLS"),
        pytest.param(struct.pack(">i", 0), id="length 0"),
        pytest.param(struct.pack(">i", -1), id="length -1"),
        pytest.param(struct.pack(">i", -(2**31)), id="length -2^31"),
        pytest.param(struct.pack(">i", 2**31 - 1), id="length 2^31-1"),
        pytest.param(struct.pack(">i", REQUEST_LIMIT + 1), id="one over the limit"),
        pytest.param(struct.pack(">i", 3) + b"abc", id="too short for a header"),
        pytest.param(wire.frame(999, 0, 1, b""), id="unknown API"),
        pytest.param(wire.frame(-1, 0, 1, b""), id="negative API"),
        pytest.param(wire.frame(wire.METADATA, 99, 1, b"\x00" * 20), id="unknown version"),
        pytest.param(wire.frame(wire.METADATA, 5, 1, struct.pack(">i", 2**31 - 1)), id="count beyond the bytes left"),
        pytest.param(wire.frame(wire.METADATA, 5, 1, struct.pack(">ih", 1, 3) + b"\xff\xfe"), id="truncated string"),
        pytest.param(wire.frame(wire.LIST_OFFSETS, 5, 1, b"\xff"), id="truncated body"),
    ],
)
def test_the_connection_is_closed(server: Server, bystander: wire.Connection, sent: bytes) -> None:
    with wire.Connection(server.port) as connection:
        connection.socket.sendall(sent)
        assert_closed(connection)
        assert wire.brokers_known(bystander) == 1


def test_a_request_at_the_limit_is_waited_for(server: Server, bystander: wire.Connection) -> None:
    with wire.Connection(server.port) as connection:
        connection.socket.sendall(struct.pack(">i", REQUEST_LIMIT))
        connection.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            connection.socket.recv(1)


@pytest.mark.parametrize("version", [5, 99, 32_767])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(server: Server, version: int) -> None:
    with wire.Connection(server.port) as connection:
        answer = connection.request(wire.API_VERSIONS, version, b"\x00\x05odradek\x041.0\x00")
        assert answer.int16() == UNSUPPORTED_VERSION
        supported = {answer.int16(): (answer.int16(), answer.int16()) for _ in range(answer.int32())}
        assert supported[wire.API_VERSIONS] == (0, 4)
        assert answer.position == len(answer.data), "version 0 ends after the keys"
        # The connection stays open: the client asks again in a version both know.
        again = connection.request(wire.API_VERSIONS, 0, b"")
        assert again.int16() == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_produce_is_advertised_but_closes_the_connection(
    server: Server, bystander: wire.Connection, new_topic: Callable[..., str], version: int
) -> None:
    topic = new_topic()
    answer = bystander.request(wire.API_VERSIONS, 0, b"")
    answer.int16()
    supported = {answer.int16(): (answer.int16(), answer.int16()) for _ in range(answer.int32())}
    assert supported[wire.PRODUCE] == (0, 13)
    batch = wire.record_batch([b"old"], timestamp_ms=1_700_000_000_000)
    body = wire.produce_body(topic, [(0, batch)], acks=1)[2:]  # without the transactional id of version 3
    with wire.Connection(server.port) as connection:
        connection.send(wire.PRODUCE, version, body)
        assert_closed(connection)
    assert wire.list_offsets(bystander, topic, [0], wire.LATEST) == [(0, 0, 0)]


def test_one_byte_at_a_time(server: Server, bystander: wire.Connection, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    batch = wire.record_batch([b"slowly"], timestamp_ms=1_700_000_000_000)
    sent = wire.frame(wire.PRODUCE, 7, 41, wire.produce_body(topic, [(0, batch)], acks=-1))
    with wire.Connection(server.port) as connection:
        for position in range(len(sent)):
            connection.socket.sendall(sent[position : position + 1])
            if position % 20 == 0:
                started = time.monotonic()
                assert wire.brokers_known(bystander) == 1
                assert time.monotonic() - started < 5
        answer = connection.receive()
        assert answer.correlation_id == 41
        assert wire.produce_errors(answer) == [(0, 0, 0)]


def test_half_a_request_then_gone(server: Server, bystander: wire.Connection, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    batch = wire.record_batch([b"x" * 1_000], timestamp_ms=1_700_000_000_000)
    sent = wire.frame(wire.PRODUCE, 7, 1, wire.produce_body(topic, [(0, batch)], acks=1))
    for cut in (2, 4, 9, 30, len(sent) - 1):
        with wire.Connection(server.port) as connection:
            connection.socket.sendall(sent[:cut])
            # Reset rather than close, so that the server sees an error and not the end of the stream.
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert wire.list_offsets(bystander, topic, [0], wire.LATEST) == [(0, 0, 0)]
