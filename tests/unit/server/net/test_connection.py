"""One connection: frames in whatever pieces, answers in order, and what becomes of those who do not keep to it."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.server.asking import fetch, fetched, produce, produced, values, wanted
from tests.unit.server.net.one_node import ASK, answered_ids, endpoint, on_a_node
from tests.unit.server.rig import Client, Rig, decode_response, framed, request_body

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.server.net.buffers import SMALLEST_BUFFER
from odradek.server.net.connection import (
    FULL_FRAME_BUFFER_BYTES,
    LARGE_FRAME_BYTES,
    MAX_UNANSWERED,
    MAX_UNSENT_BYTES,
    Connection,
)


def owner(client: Client) -> Connection:
    assert isinstance(client.wire.owner, Connection)
    return client.wire.owner


# Frames.


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 17, 100, 4096])
def test_frames_come_in_pieces_of_any_size(piece: int) -> None:
    async def test(rig: Rig, client: Client) -> None:
        requests = [produce("t", b"a" * 100), ASK, fetch("t", wanted(0)), produce("t", b"b" * 3000), ASK]
        versions = [9, 9, 12, 8, 1]
        stream = b"".join(
            framed(request_body(request, version, number))
            for number, (request, version) in enumerate(zip(requests, versions, strict=True))
        )
        for start in range(0, len(stream), piece):
            client.wire.feed(stream[start : start + piece])
        assert await answered_ids(client) == [0, 1, 2, 3, 4]
        hosted = rig.node.rooms.replicas.require("t", 0)
        assert hosted.partition.log.log_end_offset == 2
        assert owner(client)._buffer is None

    on_a_node(test)


def test_nobody_is_served_by_a_node_that_does_not_serve_yet() -> None:
    """What came before the connection is closed was appended, by a broker that was not registered (seed 811096)."""

    async def test(rig: Rig, client: Client) -> None:
        scope = rig.node.rooms.listeners.by_name["PLAINTEXT"].scope
        scope.serving = False
        early = rig.connect()
        early.wire.feed(framed(request_body(produce("t", b"early"), 9, 1)))
        assert await answered_ids(early) == []
        assert early.wire.closed
        assert rig.node.rooms.replicas.require("t", 0).partition.log.log_end_offset == 0

    on_a_node(test)


@pytest.mark.parametrize("size", [60_000, 65_536, 200_000, 2_097_152, 3_000_000, 9_000_000])
def test_large_frames_are_received_whole(size: int) -> None:
    async def test(rig: Rig, client: Client) -> None:
        for _ in range(2):
            request = produce("large", b"x" * size)
            assert produced(await client.ask(request, 9)).error_code == 0
            small = client.send(produce("t", b"small"), 9)
            client.send(request, 9)
            assert produced(await client.answer(small, request, 9)).error_code == 0
        await asyncio.sleep(1)
        assert rig.node.rooms.replicas.require("large", 0).partition.log.log_end_offset == 4
        found = await client.ask(fetch("large", wanted(0, 3, max_bytes=1)), 12)
        assert values(fetched(found)[0]) == [b"x" * size]

    rig = Rig()

    async def run() -> None:
        await rig.create_topic("t")
        await rig.create_topic("large", 1, {"max.message.bytes": "20000000"})
        await test(rig, rig.connect())

    rig.run(run)


@pytest.mark.parametrize("size", [-1, -(2**31), 104_857_601, 2**31 - 1])
def test_a_length_that_cannot_be_closes_the_connection(size: int, caplog: pytest.LogCaptureFixture) -> None:
    async def test(rig: Rig, client: Client) -> None:
        client.wire.feed(struct.pack(">i", size))
        assert client.wire.closed
        assert (await rig.connect().ask(ASK, 9)).topics[0].error_code == 0

    with caplog.at_level(logging.WARNING):
        on_a_node(test)
    assert len(caplog.records) == 1
    assert "socket.request.max.bytes" in caplog.text


@pytest.mark.parametrize("size", range(10))
def test_a_frame_too_short_for_a_header_closes_the_connection(size: int, caplog: pytest.LogCaptureFixture) -> None:
    async def test(rig: Rig, client: Client) -> None:
        client.wire.feed(struct.pack(">i", size) + bytes(size))
        assert client.wire.closed

    with caplog.at_level(logging.WARNING):
        on_a_node(test)
    assert len(caplog.records) == 1


def test_memory_follows_the_bytes_that_came_not_the_length_they_promise() -> None:
    async def test(rig: Rig, client: Client) -> None:
        connection = owner(client)
        promised = 100 * 1024 * 1024
        client.wire.feed(struct.pack(">i", promised))
        assert connection._buffer is not None
        assert connection._buffer.size <= FULL_FRAME_BUFFER_BYTES
        came = 4
        while came < 20 * 1024 * 1024:
            client.wire.feed(bytes(1024 * 1024))
            came += 1024 * 1024
            assert connection._buffer.size <= max(2 * came, FULL_FRAME_BUFFER_BYTES) * 2
        client.wire.lose(None)
        assert connection._buffer is None

    on_a_node(test)


def test_an_idle_connection_holds_no_buffer() -> None:
    async def test(rig: Rig, client: Client) -> None:
        assert owner(client)._buffer is None
        await client.ask(ASK, 9)
        assert owner(client)._buffer is None
        client.wire.feed(b"\0")
        held = owner(client)._buffer
        assert held is not None
        assert held.size == SMALLEST_BUFFER

    on_a_node(test)


# Headers.


def test_unknown_apis_and_versions_close_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def test(rig: Rig, _: Client) -> None:
        for key, version in ((71, 0), (9999, 0), (-1, 0), (3, 14), (3, -1), (0, 2), (0, 14), (52, 0)):
            client = rig.connect()
            client.wire.feed(framed(struct.pack(">hhih", key, version, 1, -1) + bytes(20)))
            assert client.wire.closed
            assert client.answered == []

    with caplog.at_level(logging.WARNING):
        on_a_node(test)
    assert len(caplog.records) == 8


@pytest.mark.parametrize("version", [5, 99, -1, 32767])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(version: int) -> None:
    async def test(rig: Rig, client: Client) -> None:
        client.wire.feed(framed(struct.pack(">hhih", 18, version, 7, -1) + b"anything at all"))
        ((correlation_id, body),) = client.answered
        response: Any = decode_response(ApiKey.API_VERSIONS, 0, body)
        assert correlation_id == 7
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        ((only),) = response.api_keys
        assert (only.api_key, only.min_version, only.max_version) == (18, 0, 4)
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        assert (await client.ask(request, 4)).error_code == 0

    on_a_node(test)


def test_an_unknown_version_of_api_versions_waits_for_its_turn() -> None:
    async def test(rig: Rig, client: Client) -> None:
        client.send(fetch("t", wanted(0), max_wait_ms=500), 12)
        client.wire.feed(framed(struct.pack(">hhih", 18, 99, 7, -1)))
        assert await answered_ids(client) == [1, 7]

    on_a_node(test)


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (lambda body: body[:-1], "too early"),
        (lambda body: body[:8] + b"\x7f\xff" + body[10:], "client id"),
        (lambda body: body[:10] + b"\xff" + body[11:], "UTF-8"),
        (lambda body: body[:16], "malformed"),
        (lambda body: body[:16] + b"\x05" + body[17:], "malformed"),
        (lambda body: body[:16] + b"\xff\xff\xff\xff\xff\xff" + body[17:], "varint"),
    ],
    ids=["truncated", "client id length", "client id bytes", "no tags", "tags", "varint"],
)
def test_malformed_requests_close_the_connection(
    spoil: Callable[[bytes], bytes], word: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(rig: Rig, client: Client) -> None:
        client.wire.feed(framed(spoil(request_body(ASK, 9, 1, client_id="tester"))))
        assert client.wire.closed
        assert client.answered == []

    with caplog.at_level(logging.WARNING):
        on_a_node(test)
    (line,) = caplog.messages
    assert "tester" in line
    assert word in line


def test_client_ids_may_be_null_empty_or_change() -> None:
    async def test(rig: Rig, client: Client) -> None:
        seen: list[str | None] = []
        metadata = endpoint(rig, ApiKey.METADATA, 9)
        handle = metadata.handle

        def noting(ctx: Any, request: Any) -> Any:
            seen.append(ctx.caller.client_id)
            return handle(ctx, request)

        metadata.handle = noting
        for name in ("a", "a", None, "", "ü", "a"):
            await client.answer(client.send(ASK, 9, client_id=name), ASK, 9)
        assert seen == ["a", "a", None, "", "ü", "a"]

    on_a_node(test)


def test_unknown_tagged_fields_of_the_header_are_passed_over() -> None:
    async def test(rig: Rig, client: Client) -> None:
        body = request_body(ASK, 9, 1, client_id="x")
        client.wire.feed(framed(body[:11] + b"\x02\x00\x03abc\x05\x01z" + body[12:]))
        assert (await answered_ids(client)) == [1]

    on_a_node(test)


def test_bytes_behind_a_request_are_passed_over() -> None:
    """As Kafka does; librdkafka relies on it."""

    async def test(rig: Rig, client: Client) -> None:
        client.wire.feed(framed(request_body(ASK, 9, 1) + b"rest") + framed(request_body(ASK, 9, 2)))
        assert await answered_ids(client) == [1, 2]

    on_a_node(test)


def test_answers_before_a_malformed_request_still_leave() -> None:
    async def test(rig: Rig, client: Client) -> None:
        client.wire.feed(framed(request_body(ASK, 9, 1)) + framed(request_body(ASK, 9, 2)[:-1]))
        assert client.wire.closed
        assert [correlation_id for correlation_id, _ in client.answered] == [1]

    on_a_node(test)


# Too many requests at a time.


def test_a_bounded_number_of_requests_is_in_flight() -> None:
    rig = Rig()

    async def test() -> None:
        (hosted,) = await rig.create_topic("synced", 1, {"flush.messages": "1"})
        client = rig.connect()
        sent = [client.send(produce("synced", b"x"), 9) for _ in range(3 * MAX_UNANSWERED)]
        assert hosted.partition.log.log_end_offset == MAX_UNANSWERED
        assert client.wire.paused
        await asyncio.sleep(10)
        assert [correlation_id for correlation_id, _ in client.answered] == sent
        assert hosted.partition.log.log_end_offset == len(sent)

    rig.run(test)


def test_a_batch_that_comes_while_others_wait_is_appended_at_once_and_answered_in_its_turn() -> None:
    rig = Rig()

    async def test() -> None:
        (synced,) = await rig.create_topic("synced", 1, {"flush.messages": "1"})
        (plain,) = await rig.create_topic("plain")
        client = rig.connect()
        sent = [client.send(produce("synced", b"x"), 9)]
        spare = owner(client)._pool.spare
        for number in range(1, 4):
            sent.append(client.send(produce("plain", b"x"), 9))
            assert plain.partition.log.log_end_offset == number
            assert owner(client)._pool.spare is spare, "it took the shortest way"
        sent.append(client.send(ASK, 9))
        assert owner(client)._buffer is not None, "what is not a batch has to wait"
        assert client.answered == []
        assert synced.partition.log.high_watermark == 0
        await asyncio.sleep(1)
        assert [correlation_id for correlation_id, _ in client.answered] == sent

    rig.run(test)


@pytest.mark.parametrize(("count", "value_bytes"), [(6, 16_000), (1, 100_000)])
def test_only_who_sent_a_large_frame_gets_room_for_another_one(count: int, value_bytes: int) -> None:
    rig = Rig()

    async def test() -> None:
        await rig.create_topic("t")
        client = rig.connect()
        await client.ask(produce("t", b"x"), 9)
        request = produce("t", bytes(value_bytes))
        frames = [framed(request_body(request, 9, number, client_id="tester")) for number in range(2, 2 + count)]
        client.wire.feed(b"".join(frames))
        assert client.has_answer(1 + count)
        is_large = len(frames[0]) >= LARGE_FRAME_BYTES
        assert len(owner(client).buffer()) == (len(frames[0]) if is_large else SMALLEST_BUFFER)

    rig.run(test)


# Clients that do not read.


def test_a_client_that_does_not_read_is_not_read_from() -> None:
    async def test(rig: Rig, client: Client) -> None:
        for number in range(100):
            await rig.create_topic(f"topic-{number}")
        client.wire.stalled = True
        everything = MetadataRequest(topics=None)
        stream = b"".join(framed(request_body(everything, 9, number)) for number in range(1_000))
        client.wire.feed(stream)
        await asyncio.sleep(1)
        assert client.wire.paused
        assert MAX_UNSENT_BYTES < client.wire.unsent_bytes < 4 * MAX_UNSENT_BYTES
        assert (await rig.connect().ask(ASK, 9)).topics[0].error_code == 0
        client.wire.drain()
        await asyncio.sleep(1)
        assert [correlation_id for correlation_id, _ in client.answered] == list(range(1_000))

    on_a_node(test)


def test_a_client_that_goes_away_without_reading_leaves_nothing() -> None:
    async def test(rig: Rig, client: Client) -> None:
        client.wire.stalled = True
        for _ in range(10):
            client.send(fetch("t", wanted(0), max_wait_ms=60_000), 12)
        await asyncio.sleep(1)
        client.wire.lose(ConnectionResetError())
        await asyncio.sleep(1)
        assert len(rig.node.rooms.purgatory) == 0
        assert owner(client).id not in rig.node.rooms.listeners.by_name["PLAINTEXT"].scope.connections

    on_a_node(test)


# Idle connections, and too many.


def test_idle_connections_are_swept_and_busy_ones_are_not() -> None:
    async def test(rig: Rig, idle: Client) -> None:
        talking, waiting = rig.connect(), rig.connect()
        waiting.send(fetch("t", wanted(0), max_wait_ms=60_000), 12)
        for _ in range(6):
            await asyncio.sleep(3)
            await talking.ask(ASK, 9)
        assert idle.wire.closed
        assert not talking.wire.closed
        assert not waiting.wire.closed
        assert list(rig.node.rooms.listeners.by_name["PLAINTEXT"].scope.connections) == [
            owner(talking).id,
            owner(waiting).id,
        ]

    on_a_node(test, connections_max_idle_ms="10000")


def test_one_byte_now_and_then_does_not_keep_a_connection() -> None:
    async def test(rig: Rig, client: Client) -> None:
        for byte in framed(request_body(ASK, 9, 1)):
            client.wire.feed(bytes((byte,)))
            await asyncio.sleep(1)
            if client.wire.closed:
                break
        assert client.wire.closed
        assert owner(client)._buffer is None

    on_a_node(test, connections_max_idle_ms="10000")


def test_more_connections_than_allowed_are_refused_and_the_others_served(caplog: pytest.LogCaptureFixture) -> None:
    async def test(rig: Rig, first: Client) -> None:
        second, third = rig.connect(), rig.connect()
        await asyncio.sleep(0.1)
        assert third.wire.closed
        for client in (first, second):
            assert (await client.ask(ASK, 9)).topics[0].error_code == 0
        second.wire.lose(None)
        assert (await rig.connect().ask(ASK, 9)).topics[0].error_code == 0

    with caplog.at_level(logging.WARNING):
        on_a_node(test, max_connections="2")
    assert len(caplog.records) == 1
