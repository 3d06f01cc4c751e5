"""One connection: answers find their requests, however they are cut, and nobody waits for ever."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.client.scripted import HOST, PORT, Ports, ScriptedBroker, ScriptedWire, play

from odradek.client.connection import Connection
from odradek.client.errors import ConnectionLost, RequestTimedOut
from odradek.protocol.api import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse

VERSION = 12


async def opened(ports: Ports) -> Connection:
    return await Connection.open(ports.network, host=HOST, port=PORT, client_id="test", timeout_ms=1000)


def wire_of(connection: Connection) -> ScriptedWire:
    wire = connection._wire
    assert isinstance(wire, ScriptedWire)
    return wire


def test_requests_are_pipelined_and_answered_in_order() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        broker.topics = {"a": 1, "b": 2, "c": 3}
        connection = await opened(ports)
        answers = [
            connection.ask(MetadataRequest(topics=None), MetadataResponse, version, timeout_ms=1000)
            for version in (4, 9, 12)
        ]
        assert connection.in_flight == 3
        assert [len((await answer).topics) for answer in answers] == [3, 3, 3]
        assert connection.in_flight == 0
        connection.close()

    play(test)


@pytest.mark.parametrize("topics", [1, 3_000])
@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_an_answer_may_come_in_pieces_and_be_larger_than_any_buffer(topics: int, piece: int) -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        broker.topics = {f"topic-{number}": 1 for number in range(topics)}
        connection = await opened(ports)
        wire = wire_of(connection)
        whole = wire.receive

        def in_pieces(data: bytes) -> None:
            for start in range(0, len(data), piece):
                whole(data[start : start + piece])

        wire.receive = in_pieces  # type: ignore[method-assign]
        first = connection.ask(MetadataRequest(topics=None), MetadataResponse, VERSION, timeout_ms=1000)
        second = connection.ask(MetadataRequest(topics=[]), MetadataResponse, VERSION, timeout_ms=1000)
        assert len((await first).topics) == topics
        assert (await second).topics == []
        connection.close()

    play(test)


class Heard:
    """Whoever waits for frames that are lent: it keeps what it read of each while it was called."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.views: list[memoryview] = []

    def done(self) -> bool:
        return False

    def set_result(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        self.views.append(frame)

    def set_exception(self, why: Exception) -> None:
        raise why

    def exception(self) -> None:
        return None


@pytest.mark.parametrize("piece", [1_000, 65_536, 100_000, 1 << 22])
def test_frames_that_are_lent_come_whole_and_in_order_between_others(piece: int) -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        sizes = [10, 70_000, 65_536 - 4, 500_000, 20, 5_000_000, 1_048_576 - 4, 1_048_576, 12]
        connection = await opened(ports)
        wire = wire_of(connection)
        heard = Heard()
        waiting: list[asyncio.Future[memoryview]] = []
        sent = b""
        for number, size in enumerate(sizes, 1):
            connection.ask_with(b"", heard, 1000, lent=True)
            waiting.append(asyncio.get_running_loop().create_future())
            connection.ask_with(b"", waiting[-1], 1000)
            for correlation_id in (2 * number - 1, 2 * number):
                frame = correlation_id.to_bytes(4) + bytes([correlation_id]) * (size - 4)
                sent += len(frame).to_bytes(4) + frame
        for start in range(0, len(sent), piece):
            wire.receive(sent[start : start + piece])
        for number, size in enumerate(sizes, 1):
            odd, even = 2 * number - 1, 2 * number
            assert heard.frames[number - 1] == odd.to_bytes(4) + bytes([odd]) * (size - 4)
            assert waiting[number - 1].result() == even.to_bytes(4) + bytes([even]) * (size - 4)
        connection.close()

    play(test)


@pytest.mark.parametrize("size", [200_000, 3_000_000])
def test_a_frame_that_is_lent_is_not_copied(size: int) -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        connection = await opened(ports)
        wire = wire_of(connection)
        heard = Heard()
        for number in (1, 2, 3):
            connection.ask_with(b"", heard, 1000, lent=True)
            wire.receive(size.to_bytes(4) + number.to_bytes(4) + bytes([number]) * (size - 4))
        second, third = heard.views[1:]
        assert second == third != heard.frames[1]
        connection.close()

    play(test)


def test_a_lent_frame_that_answers_another_request_ends_the_connection() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        connection = await opened(ports)
        heard = Heard()
        assert connection.next_correlation_id == 1
        connection.ask_with(b"", heard, 1000, lent=True)
        assert connection.next_correlation_id == 2
        with pytest.raises(ConnectionLost, match="answers request 2 instead of 1"):
            wire_of(connection).receive(b"\0\0\0\4\0\0\0\2")
        assert connection.is_lost
        assert heard.frames == []

    play(test)


def test_requests_are_numbered_anew_once_the_numbers_are_used_up() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        connection = await opened(ports)
        connection.next_correlation_id = (1 << 31) - 1
        heard = Heard()
        for _ in range(2):
            connection.ask_with(b"", heard, 1000, lent=True)
        wire_of(connection).receive(b"\0\0\0\4\x7f\xff\xff\xff" + b"\0\0\0\4\0\0\0\0")
        assert heard.frames == [b"\x7f\xff\xff\xff", bytes(4)]
        connection.close()

    play(test)


def test_a_request_that_times_out_takes_the_connection_with_it() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        async def never(request: Message) -> Message | None:
            await asyncio.sleep(3600)
            return None

        broker.answers[ApiKey.METADATA] = never
        connection = await opened(ports)
        patient = connection.ask(MetadataRequest(topics=[]), MetadataResponse, VERSION, timeout_ms=60_000)
        hasty = connection.ask(MetadataRequest(topics=[]), MetadataResponse, VERSION, timeout_ms=500)
        before = ports.clock.monotonic_ms()
        with pytest.raises(RequestTimedOut):
            await hasty
        assert 499 <= ports.clock.monotonic_ms() - before <= 510
        with pytest.raises(ConnectionLost):
            await patient
        assert connection.is_lost
        with pytest.raises(ConnectionLost):
            await connection.ask(MetadataRequest(topics=[]), MetadataResponse, VERSION, timeout_ms=500)

    play(test)


def test_whoever_waits_hears_of_a_lost_connection() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        broker.answers[ApiKey.METADATA] = lambda request: None
        connection = await opened(ports)
        answers = [
            connection.ask(MetadataRequest(topics=[]), MetadataResponse, VERSION, timeout_ms=500) for _ in range(3)
        ]
        for outcome in await asyncio.gather(*answers, return_exceptions=True):
            assert isinstance(outcome, ConnectionLost)

    play(test)


@pytest.mark.parametrize("by_the_peer", [True, False])
def test_a_connection_that_has_ended_keeps_no_room(by_the_peer: bool) -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        connection = await opened(ports)
        assert len(connection.buffer()) > 0
        if by_the_peer:
            connection.lost(None)
        else:
            connection.close()
        assert len(connection.buffer()) == 0

    play(test)


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\0\0\0\1x",
        b"\0\0\0\x08\0\0\0\x63\0\0\0\0",
        b"\0\0\0\x09\0\0\0\1\xff\xff\xff\xff\xff",
    ],
    ids=["another protocol", "too short", "another request's answer", "a cut message"],
)
def test_an_answer_that_makes_no_sense_ends_the_connection(garbage: bytes) -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        connection = await opened(ports)
        answer = connection.ask(MetadataRequest(topics=[]), MetadataResponse, VERSION, timeout_ms=500)
        wire_of(connection).receive(garbage)
        with pytest.raises(ConnectionLost):
            await answer
        assert connection.is_lost

    play(test)


def test_an_answer_nobody_asked_for_ends_the_connection() -> None:
    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        connection = await opened(ports)
        wire_of(connection).receive(b"\0\0\0\4\0\0\0\1")
        assert connection.is_lost

    play(test)


def test_a_broker_that_does_not_know_our_api_versions_is_understood() -> None:
    """It answers in version 0, whatever was asked (KIP-511)."""

    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        connection = await opened(ports)
        answer = connection.ask(ApiVersionsRequest(), ApiVersionsResponse, 4, timeout_ms=500)
        wire_of(connection).receive(b"\0\0\0\x10\0\0\0\1\0\x23\0\0\0\1\0\x12\0\0\0\3")
        response = await answer
        assert response.error_code == 35
        assert (response.api_keys[0].api_key, response.api_keys[0].max_version) == (18, 3)
        connection.close()

    play(test)
