"""One connection to one broker: requests are pipelined, answers come in order, and one timer watches all of them."""

from __future__ import annotations

import asyncio
import os
import struct
from collections import deque
from typing import Any, Protocol, TypeAlias, TypeVar

from odradek.client.errors import ConnectionLost, RequestTimedOut
from odradek.ports import Network, Part, Wire
from odradek.protocol.api import ApiKey
from odradek.protocol.codec import Message, decoder, encoder, parts_encoder
from odradek.protocol.errors import ErrorCode, MalformedFrame
from odradek.protocol.frame import RequestHead, skip_tagged_fields

ResponseT = TypeVar("ResponseT", bound=Message)

MAX_RESPONSE_BYTES = 1 << 30
"""Above any `fetch.max.bytes` in use; a larger size means that the other end does not speak Kafka."""

_ROOM_BYTES = 64 * 1024
_LARGEST_ROOM_BYTES = 4 * 1024 * 1024
"""What is lent may be as large as this; larger answers are received where they stay. The room grows with what comes and
stays so: memory that is new for every answer costs its bytes twice, as the system has to clear it."""
_NO_ROOM = memoryview(bytearray())
_TIMER_SLACK_S = 0.001
"""Timers fire a little early: their clock is coarser than the numbers they are set to."""

_NUMBER = struct.Struct(">i")
"""The size of an answer, and its correlation id."""
_LARGEST_ID = (1 << 31) - 1
_CORRELATION_AND_ERROR = struct.Struct(">ih")


class Awaiting(Protocol):
    """Whoever waits for the answer to one request; a future will do."""

    def done(self) -> bool:
        """Whether it does not wait any more."""

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, why: Exception, /) -> None:
        """ConnectionLost or RequestTimedOut."""

    def exception(self) -> BaseException | None:
        """Called where nobody else may come to look at it."""


class _Form:
    """How requests of one kind and version are written: looked up once a connection."""

    __slots__ = ("encode", "encode_parts", "head")

    def __init__(self, request: type[Message], version: int, client_id: str) -> None:
        self.head = RequestHead(request.api_key, version, client_id)
        self.encode = encoder(request, version)
        self.encode_parts = parts_encoder(request, version) if request.api_key == ApiKey.PRODUCE else None
        """Record batches are sent as they are."""


_Pending: TypeAlias = tuple[int, Awaiting, float, bool, type[Message] | None, int]
"""A request whose answer has not come yet: its number, who waits, until when, whether the frame is lent (needed no
longer than the call lasts that hands it over), and what comes in which version; without a kind of response its frame
is handed over as it came."""


class Connection:
    """The owner of one wire.

    Answers come in the order of the requests, so one that does not come holds up all behind it: a request that times
    out takes the connection with it.
    """

    __slots__ = (
        "_client_id",
        "_failure",
        "_filled",
        "_forms",
        "_large",
        "_large_filled",
        "_loop",
        "_pending",
        "_room",
        "_timer",
        "_timer_at",
        "_wire",
        "closed_by_peer",
        "features",
        "features_epoch",
        "next_correlation_id",
        "versions",
    )

    def __init__(self, wire: Wire, client_id: str) -> None:
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}
        """Finalized levels of the cluster's features, as of `features_epoch`."""
        self.features_epoch = -1
        """What the broker said it serves: lowest and highest version by API key; filled by whoever asked it."""
        self.next_correlation_id = 1
        """Of the request that is sent next, for whoever makes its bytes."""
        self._wire = wire
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._room = memoryview(bytearray(_ROOM_BYTES))
        self._filled = 0
        """How much of the room holds what was heard: the beginning of a frame."""
        self._large: memoryview | None = None
        self._large_filled = 0
        self._pending: deque[_Pending] = deque()
        self._forms: dict[tuple[type[Message], int], _Form] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._failure: Exception | None = None
        self.closed_by_peer = False
        """Whether the process at the other end closed it, or has ended; not where the network lost it."""

    @classmethod
    async def open(cls, network: Network, *, host: str, port: int, client_id: str, timeout_ms: int) -> Connection:
        """Raises ConnectionLost with the reason if nobody answers there in time."""
        made: list[Connection] = []

        def own(wire: Wire) -> Connection:
            made.append(cls(wire, client_id))
            return made[0]

        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await network.connect(host, port, own)
        except TimeoutError:
            raise ConnectionLost(f"{host}:{port} did not answer within {timeout_ms} ms") from None
        except OSError as refused:
            raise ConnectionLost(f"{host}:{port}: {_reason(refused)}") from refused
        return made[0]

    @property
    def is_lost(self) -> bool:
        return self._failure is not None

    @property
    def in_flight(self) -> int:
        """Requests that wait for an answer."""
        return len(self._pending)

    def ask(
        self, request: Message, response: type[ResponseT], version: int, *, timeout_ms: int
    ) -> asyncio.Future[ResponseT]:
        """Send now; the answer, ConnectionLost or RequestTimedOut arrives in the future."""
        answer: asyncio.Future[ResponseT] = self._loop.create_future()
        self.ask_for(answer, request, response, version, timeout_ms=timeout_ms)
        return answer

    def ask_for(
        self, answer: Awaiting, request: Message, response: type[Message], version: int, *, timeout_ms: int
    ) -> None:
        """The same for somebody who is not a future, and is told by a plain call."""
        if self._failure is not None:
            answer.set_exception(ConnectionLost(str(self._failure)))
            return
        deadline = self._loop.time() + timeout_ms / 1000
        self._pending.append((self._send(request, version), answer, deadline, False, response, version))
        if self._timer is None or self._timer_at > deadline:
            self._watch(deadline)

    def ask_with(self, frame: bytes, answer: Awaiting, timeout_ms: int, lent: bool = False) -> None:
        """Send a frame made with `next_correlation_id`; `answer` gets the frame that answers it, from there on.

        If that is lent, it is good only until the answer has returned from `set_result`, and cost no copy; whoever
        borrows waits until it is told. (Hot: a follower asks anew with every answer.)
        """
        if self._failure is not None:
            answer.set_exception(ConnectionLost(str(self._failure)))
            return
        correlation_id = self.next_correlation_id
        self.next_correlation_id = correlation_id + 1 if correlation_id != _LARGEST_ID else 0
        self._wire.send((frame,))
        deadline = self._loop.time() + timeout_ms / 1000
        self._pending.append((correlation_id, answer, deadline, lent, None, 0))
        if self._timer is None or self._timer_at > deadline:
            self._watch(deadline)

    def tell(self, request: Message, version: int) -> None:
        """Send a request that gets no answer (Produce with acks=0); ConnectionLost if it cannot even be tried."""
        if self._failure is not None:
            raise ConnectionLost(str(self._failure))
        self._send(request, version)

    def close(self, failure: Exception | None = None) -> None:
        """Close now; whoever still waits gets ConnectionLost."""
        self._end(failure or ConnectionLost("the connection was closed by this client"))
        self._wire.close()

    def _send(self, request: Message, version: int) -> int:
        correlation_id = self.next_correlation_id
        self.next_correlation_id = correlation_id + 1 if correlation_id != _LARGEST_ID else 0
        kind = type(request)
        form = self._forms.get((kind, version))
        if form is None:
            form = self._forms[kind, version] = _Form(kind, version, self._client_id)
        if form.encode_parts is None:
            body = form.encode(request)
            self._wire.send((form.head.before(len(body), correlation_id) + body,))
        else:
            parts: list[Part] = form.encode_parts(request)
            self._wire.send([form.head.before(sum(map(len, parts)), correlation_id), *parts])
        return correlation_id

    # What the wire calls.

    def buffer(self) -> memoryview:
        if self._large is not None:
            return self._large[self._large_filled :]
        return self._room[self._filled :] if self._filled else self._room

    def received(self, count: int) -> None:
        if self._large is not None:
            self._large_filled += count
            if self._large_filled == len(self._large):
                frame, self._large = self._large, None
                self._answer(frame)
            return
        room, pending = self._room, self._pending
        end = self._filled + count
        position = 0
        while end - position >= 4 and self._failure is None:
            (size,) = _NUMBER.unpack_from(room, position)
            if not 4 <= size <= MAX_RESPONSE_BYTES:
                self.close(ConnectionLost(f"a response of {size} bytes: {self._wire.peer_host} does not speak Kafka"))
                return
            start = position + 4
            if end - start < size:
                if start + size > len(room):
                    self._make_room(size, room[position:end])
                    return
                break
            position = start + size
            if pending and pending[0][3] and (pending[0][0],) == _NUMBER.unpack_from(room, start):
                pending.popleft()[1].set_result(room[start:position])
            else:
                self._answer(memoryview(bytes(room[start:position])))
        self._filled = rest = end - position
        if rest and position:
            room[:rest] = bytes(room[position:end])

    def drained(self) -> None:
        """Nothing waits for it: what is in flight is limited by whoever asks."""

    def lost(self, why: Exception | None) -> None:
        self.closed_by_peer = why is None and self._failure is None
        closed = why is None or isinstance(why, ConnectionError | TimeoutError)
        self._end(ConnectionLost(f"{self._wire.peer_host} closed the connection" if closed else str(why)))

    # What follows from it.

    def _make_room(self, size: int, begun: memoryview) -> None:
        """For a frame of that size, of which this has come.

        One that is not lent is received where it stays: its record batches are never copied.
        """
        room = self._room
        fits = size + 4 <= len(room)
        if not fits and not (self._pending and self._pending[0][3] and size + 4 <= _LARGEST_ROOM_BYTES):
            self._large = memoryview(bytearray(size))
            self._large_filled = len(begun) - 4
            self._large[: self._large_filled] = begun[4:]
            self._filled = 0
            return
        if not fits:
            self._room = memoryview(bytearray(1 << (size + 3).bit_length()))
        self._filled = len(begun)
        self._room[: self._filled] = bytes(begun)

    def _answer(self, frame: memoryview) -> None:
        if not self._pending:
            self.close(ConnectionLost(f"{self._wire.peer_host} answered what nobody asked"))
            return
        pending_id, answer, _, _, response, version = self._pending[0]
        (correlation_id,) = _NUMBER.unpack_from(frame)
        try:
            if correlation_id != pending_id:
                raise MalformedFrame(f"it answers request {correlation_id} instead of {pending_id}")
            message = frame if response is None else decode_answer(frame, response, version)
        except MalformedFrame as wrong:
            self.close(ConnectionLost(f"a response of {self._wire.peer_host} makes no sense: {wrong}"))
            return
        self._pending.popleft()
        if not answer.done():
            answer.set_result(message)

    def _watch(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._look_at_deadlines)

    def _look_at_deadlines(self) -> None:
        self._timer = None
        if not self._pending:
            return
        _, answer, deadline, _, _, _ = min(self._pending, key=_deadline)
        if deadline - self._loop.time() > _TIMER_SLACK_S:
            self._watch(deadline)
            return
        timed_out = RequestTimedOut(f"{self._wire.peer_host} did not answer in time")
        if not answer.done():
            answer.set_exception(timed_out)
        self.close(ConnectionLost(f"{self._wire.peer_host} did not answer an earlier request in time"))

    def _end(self, failure: Exception) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        # A follower's has megabytes. They need not wait for the collector to find the task that asked here.
        self._room = _NO_ROOM
        self._large = None
        if self._timer is not None:
            self._timer.cancel()
        for _, answer, _, _, _, _ in self._pending:
            if not answer.done():
                answer.set_exception(ConnectionLost(str(failure)))
                answer.exception()  # Whoever pipelined it may have heard of the loss from an earlier one.
        self._pending.clear()


def _reason(refused: OSError) -> str:
    """The system's own words: asyncio puts the call in their place. Resolvers have numbers of their own, below zero."""
    if refused.errno is not None and refused.errno > 0:
        return os.strerror(refused.errno)
    return refused.strerror or str(refused)


def _deadline(pending: _Pending) -> float:
    return pending[2]


def decode_answer(frame: memoryview, response: type[ResponseT], version: int) -> ResponseT:
    """The message in a frame that begins with its correlation id; MalformedFrame if it makes no sense."""
    position = 4
    if response.api_key == ApiKey.API_VERSIONS:  # Its answers have the oldest header, whatever their version.
        if len(frame) >= _CORRELATION_AND_ERROR.size:
            error_code = _CORRELATION_AND_ERROR.unpack_from(frame)[1]
            if error_code == ErrorCode.UNSUPPORTED_VERSION:
                version = 0  # What it does not know it answers in the oldest version, so that it can be read (KIP-511).
    elif version in response.flexible:
        position = skip_tagged_fields(frame, position)
    message, position = decoder(response, version)(frame, position)
    return message
