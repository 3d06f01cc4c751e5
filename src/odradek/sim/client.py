"""A small client for workloads: one connection, requests pipelined, answers matched in order."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import Any, TypeVar

from odradek.ports import Network, Wire
from odradek.protocol.api import ApiKey, response_header_version
from odradek.protocol.codec import Message, decoder, encode
from odradek.protocol.frame import RequestHeader, ResponseHeader, request_frame

ResponseT = TypeVar("ResponseT", bound=Message)

_SIZE = struct.Struct(">i")
_ROOM = 64 * 1024


class Disconnected(Exception):
    """The connection went before the answer came: whether the request was carried out is unknown."""


class ClientConnection:
    """Owner of one wire on the client's side."""

    def __init__(self, wire: Wire, client_id: str) -> None:
        self._wire = wire
        self._client_id = client_id
        self._room = memoryview(bytearray(_ROOM))
        self._heard = bytearray()
        self._waiting: deque[tuple[int, type[Message], int, asyncio.Future[Any]]] = deque()
        self._correlation_id = 0
        self._lost = False

    @classmethod
    async def open(cls, network: Network, *, host: str, port: int, client_id: str) -> ClientConnection:
        owners: list[ClientConnection] = []

        def own(wire: Wire) -> ClientConnection:
            owners.append(cls(wire, client_id))
            return owners[0]

        await network.connect(host, port, own)
        return owners[0]

    def ask(self, request: Message, response: type[ResponseT], version: int) -> asyncio.Future[ResponseT]:
        """Send now; the answer, or Disconnected, arrives in the future."""
        answer: asyncio.Future[ResponseT] = asyncio.get_running_loop().create_future()
        if self._lost:
            _disconnect(answer)
            return answer
        self._waiting.append((self._send(request, version), response, version, answer))
        return answer

    def close(self) -> None:
        self._wire.close()

    def _send(self, request: Message, version: int) -> int:
        self._correlation_id += 1
        header = RequestHeader(
            request_api_key=request.api_key,
            request_api_version=version,
            correlation_id=self._correlation_id,
            client_id=self._client_id,
        )
        self._wire.send(request_frame(header, [encode(request, version)]))
        return self._correlation_id

    # What the wire calls.

    def buffer(self) -> memoryview:
        return self._room

    def received(self, count: int) -> None:
        heard = self._heard
        heard += self._room[:count]
        while len(heard) >= 4:
            end = 4 + _SIZE.unpack_from(heard)[0]
            if len(heard) < end:
                return
            frame = bytes(heard[4:end])
            del heard[:end]
            self._answer(frame)

    def drained(self) -> None:
        """Nothing waits for it: workloads are small."""

    def lost(self, why: Exception | None) -> None:
        self._lost = True
        for _, _, _, answer in self._waiting:
            if not answer.done():
                _disconnect(answer)
        self._waiting.clear()

    def _answer(self, frame: bytes) -> None:
        correlation_id, response, version, answer = self._waiting.popleft()
        header_version = response_header_version(ApiKey(response.api_key), version)
        header, position = decoder(ResponseHeader, header_version)(frame, 0)
        assert header.correlation_id == correlation_id, "answers came out of order"
        message, position = decoder(response, version)(frame, position)
        assert position == len(frame), "bytes behind an answer"
        if not answer.done():
            answer.set_result(message)


def _disconnect(answer: asyncio.Future[Any]) -> None:
    answer.set_exception(Disconnected())
    answer.exception()  # Whoever pipelined it may have heard of the loss from an earlier one.
