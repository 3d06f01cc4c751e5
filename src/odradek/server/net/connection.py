"""One client connection: frames in, answers out, in order.

A frame stays in the receive buffer while its handler runs; views into it are good until the handler first waits. Like
Kafka, a connection works on one request at a time, with one exception that changes nothing a client can see: a Produce
may be appended while earlier ones still wait for a flush or for their replicas. Answers leave in the order of the
requests, gathered into one send per turn of the loop.
"""

from __future__ import annotations

import asyncio
import logging
from struct import Struct
from typing import TYPE_CHECKING

from odradek.ports import Wire
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import MalformedFrame
from odradek.protocol.frame import skip_tagged_fields
from odradek.server.access.caller import Caller
from odradek.server.access.quotas import is_metered, metered
from odradek.server.net.answers import ANSWER, Answers
from odradek.server.net.buffers import SMALLEST_BUFFER, Buffer
from odradek.server.net.context import RequestContext
from odradek.server.net.dispatch import Endpoint, UnservedRequest
from odradek.server.net.routes import CachedReader, Plan
from odradek.server.net.unsupported_version import unsupported_version_answer
from odradek.server.waiting.deferred import Deferred

if TYPE_CHECKING:
    from odradek.server.net.listener import ListenerScope

log = logging.getLogger(__name__)

MAX_UNANSWERED = 64
"""Requests in flight on one connection before it is not read any further."""

MAX_UNSENT_BYTES = 1024 * 1024
"""A client that does not read its answers is not read from either, once this much waits for it."""

FULL_FRAME_BUFFER_BYTES = 2 * 1024 * 1024
"""Up to here a declared length is believed and gets its buffer at once; beyond, the buffer doubles as bytes arrive."""

LARGE_FRAME_BYTES = 64 * 1024
"""A frame this large is received up to its end and no further: what comes behind it would have to be moved."""

_SIZE = Struct(">i")
_SIZE_AND_HEADER = Struct(">ihhih")
_HEADER = Struct(">hhih")

_NO_CLIENT_ID = bytes(1 << 15)
"""Longer than any that can be sent, so it is never taken for one."""


class Connection(Answers):
    """Owner of one wire."""

    __slots__ = (
        "_buffer",
        "_cached",
        "_cached_endpoint",
        "_caller",
        "_client_id_bytes",
        "_end",
        "_expected_bytes",
        "_frame_end",
        "_get_endpoint",
        "_muted",
        "_pool",
        "_start",
        "id",
    )

    def __init__(self, scope: ListenerScope, wire: Wire, connection_id: int) -> None:
        super().__init__(scope, wire)
        self.id = connection_id
        self._pool = scope.buffers
        self._get_endpoint = scope.endpoints.get
        self._buffer: Buffer | None = None
        self._start = 0
        self._end = 0
        self._expected_bytes = 0
        """The size of the last frame if it was a large one: the next is likely to be like it."""
        self._frame_end = 0
        """Where in the buffer a large frame that has begun will end."""
        self._muted: asyncio.TimerHandle | None = None
        """While it runs nothing is read: the client was told to wait."""
        self._caller = self._called(None)
        self._client_id_bytes = _NO_CLIENT_ID
        self._cached: CachedReader | None = None
        """Of what it is asked again and again,"""
        self._cached_endpoint: Endpoint | None = None
        """there."""

    def mute(self, duration_ms: int) -> None:
        """Hear nothing for a while, as a client above its quota was told."""
        if self._closed:
            return
        if self._muted is not None:
            self._muted.cancel()
        self._muted = asyncio.get_running_loop().call_later(duration_ms / 1000, self._unmute)
        self._set_paused(True)

    def refuse(self, after_ms: int) -> None:
        """Hear nothing, and close then: at once would only make the client come again at once."""
        self._muted = asyncio.get_running_loop().call_later(after_ms / 1000, self.close)

    def _unmute(self) -> None:
        self._muted = None
        self._serve_frames()

    # What the wire calls.

    def buffer(self) -> memoryview:
        buffer = self._buffer
        if buffer is None:
            if not self._expected_bytes:
                return self._pool.spare.view
            self._buffer = buffer = self._pool.take(self._expected_bytes)
            return buffer.view[: self._expected_bytes]
        return buffer.view[self._end : self._frame_end] if self._frame_end else buffer.view[self._end :]

    def received(self, count: int) -> None:
        if self._buffer is None:
            cached = self._cached
            if cached is not None and not self._waiting and self._muted is None and not self._wire.unsent_bytes:
                found = cached.read(self._pool.spare.view, count)
                if found is not None:
                    plan, correlation_id = found
                    assert self._cached_endpoint is not None
                    answer = self._carry_out(self._cached_endpoint, self._caller, plan, correlation_id, count - 4)
                    if answer:
                        self._wire.send(answer if isinstance(answer, list) else (answer,))
                    elif self._answers:
                        self._flush()
                    return
            if self._serve_lone_request(self._pool.spare.view, count):
                return
            self._buffer = self._pool.take_spare()
        self._end += count
        self._serve_frames()

    def drained(self) -> None:
        if self._paused:
            self._serve_frames()

    def lost(self, why: Exception | None) -> None:
        self._closed = True
        if self._muted is not None:
            self._muted.cancel()
        if why is not None and not isinstance(why, ConnectionError | TimeoutError):
            log.info("Lost the connection from %s: %s", self._wire.peer_host, why)
        self._scope.forget(self.id, closed_by_peer=why is None and not self._closed_here)
        for slot in self._waiting:
            if slot.handler is not None:
                slot.handler.cancel()
                slot.handler = None
            elif slot.deferred is not None:
                slot.deferred.on_done = None
        self._waiting.clear()
        self._answers.clear()
        self._release()

    # Frames.

    def _serve_lone_request(self, view: memoryview, end: int) -> bool:
        """Answer a small request of the most common kind that came whole and alone; False if it did not.

        What `_serve_frames` and `_serve` do for it, without what they do for the others: a client that waits for each
        answer finds the processor cold, and every line of code costs it. It never takes the buffer it came in.
        """
        size, api_key, version, correlation_id, name_length = _SIZE_AND_HEADER.unpack_from(view)
        scope = self._scope
        if (
            size != end - 4
            or size > scope.max_lone_request_bytes
            or name_length < 0
            or self._muted is not None
            or self._wire.unsent_bytes
        ):
            return False
        endpoint = self._get_endpoint(api_key << 16 | version)
        if endpoint is None or (
            endpoint.read is None
            and (endpoint.fast_path is None or (scope.rooms.guarded and not self._may_pass(endpoint)))
        ):
            return False
        waiting = self._waiting
        if waiting and not self._may_overlap(endpoint):
            return False
        position = 14 + name_length
        if view[14:position] != self._client_id_bytes or position >= end:
            return False
        if endpoint.flexible_header:
            if view[position]:
                return False
            position += 1
        if endpoint.read is not None:
            plan = endpoint.read(view[:end], position)
            if plan is None:
                return False
            if endpoint.cached_reader is not None and not waiting and scope.max_request_bytes >= SMALLEST_BUFFER:
                self._learn(endpoint, view[:end], plan)
            done = self._carry_out(endpoint, self._caller, plan, correlation_id, size)
            if done:
                self._wire.send(done if isinstance(done, list) else (done,))
            elif self._answers:
                self._flush()
            return True
        assert endpoint.fast_path is not None
        try:
            answer = endpoint.fast_path(scope.rooms, view[:end], position, correlation_id)
        except Exception as error:  # noqa: BLE001 - sorted out by kind
            self._answer_failure(endpoint, correlation_id, error)
            if self._answers:
                self._flush()
        else:
            if answer is None:
                return False
            endpoint.served += 1
            self.last_request_ms = self._clock.monotonic_ms()
            if isinstance(answer, Deferred):
                self._await(endpoint, correlation_id, answer)
            elif waiting:
                self._line_up(endpoint, correlation_id, answer)
            elif isinstance(answer, list):
                self._wire.send(answer)
            elif answer:
                self._wire.send((answer,))
        return True

    def _learn(self, endpoint: Endpoint, view: memoryview, plan: Plan) -> None:
        """The next request is likely to be like this one. (A cached reader does not look at sizes.)"""
        if self._cached is None or self._cached_endpoint is not endpoint:
            assert endpoint.cached_reader is not None
            self._cached, self._cached_endpoint = endpoint.cached_reader(view, plan), endpoint
        if self._cached is not None:
            self._cached.learn(view, plan)

    def _serve_frames(self) -> None:
        buffer = self._buffer
        if buffer is None:
            self._set_paused(self._muted is not None)
            return
        view = buffer.view
        start, end = self._start, self._end
        size = 0
        held = False
        while end - start >= 4:
            (size,) = _SIZE.unpack_from(view, start)
            if size < 0 or size > self._scope.max_request_bytes:
                self._reject(f"a request of {size} bytes (socket.request.max.bytes={self._scope.max_request_bytes})")
                return
            frame_end = start + 4 + size
            if frame_end > end:
                break
            self._start = start
            if not self._serve(view[start + 4 : frame_end]):
                held = True
                break
            if self._answer_bytes > MAX_UNSENT_BYTES:
                self._flush()  # Many small requests with large answers in one buffer: see first whether it is read.
            if self._closed:
                return
            start = frame_end
        self._start = start
        if self._answers:
            self._flush()
            if self._closed:
                return
        self._set_paused(held or self._muted is not None)
        if start == end:
            frame_bytes = size + 4  # Of the last one: several small ones do not make a large one.
            self._expected_bytes = frame_bytes if LARGE_FRAME_BYTES <= frame_bytes <= FULL_FRAME_BUFFER_BYTES else 0
            self._release()
        elif not held:
            self._make_room(start, end)

    def _make_room(self, start: int, end: int) -> None:
        """Let the rest of the frame that has begun fit behind what is there of it."""
        buffer = self._buffer
        assert buffer is not None
        have = end - start
        needed = _SIZE.unpack_from(buffer.view, start)[0] + 4 if have >= 4 else have + 4
        if needed > buffer.size - start:
            buffer = self._move_to_front(buffer, start, have, needed)
        frame_end = self._start + needed
        self._frame_end = min(frame_end, buffer.size) if needed >= LARGE_FRAME_BYTES else 0

    def _move_to_front(self, buffer: Buffer, start: int, have: int, needed: int) -> Buffer:
        """Of the same buffer, or of a larger one."""
        begun = buffer.view[start : start + have]
        # A declared length is not believed beyond a bound: memory follows the bytes that really came.
        size = needed if needed <= FULL_FRAME_BUFFER_BYTES else min(needed, max(have * 2, FULL_FRAME_BUFFER_BYTES))
        if size <= buffer.size:
            buffer.view[:have] = bytes(begun)
        else:
            larger = self._pool.take(size)
            larger.view[:have] = begun
            self._pool.give_back(buffer, start + have)
            self._buffer = buffer = larger
        self._start, self._end = 0, have
        return buffer

    def _release(self) -> None:
        buffer = self._buffer
        if buffer is not None:
            self._buffer = None
            self._pool.give_back(buffer, self._end)
            self._start = self._end = self._frame_end = 0

    def _set_paused(self, paused: bool) -> None:
        if paused != self._paused:
            self._paused = paused
            if paused:
                self._wire.pause()
            else:
                self._wire.resume()

    # Requests.

    def _serve(self, frame: memoryview) -> bool:
        """Start one request; False if it has to wait for earlier ones."""
        try:
            api_key, version, correlation_id, name_length = _HEADER.unpack_from(frame)
        except Exception:  # noqa: BLE001 - struct.error, which is not worth an import on this path
            self._reject(f"a frame of {len(frame)} bytes, too short for a request header")
            return True
        endpoint = self._get_endpoint(api_key << 16 | version)
        if self._muted is not None:
            return False
        if self._wire.unsent_bytes > MAX_UNSENT_BYTES:
            return False
        if self._waiting and (endpoint is None or not self._may_overlap(endpoint)):
            return False
        try:
            if endpoint is None:
                endpoint = self._compile(api_key, version, correlation_id)
                if endpoint is None:
                    return True
            position = 10
            if name_length >= 0:
                position += name_length
                name = frame[10:position]
                if name != self._client_id_bytes:
                    self._remember_client_id(name, name_length)
            elif self._caller.client_id is not None:
                self._caller = self._called(None)
                self._client_id_bytes = _NO_CLIENT_ID
                self._cached = None
            if endpoint.flexible_header:
                position = position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)
            if endpoint.read is not None:
                plan = endpoint.read(frame, position)
                if plan is None:
                    assert endpoint.plan_of is not None
                    plan = endpoint.plan_of(endpoint.decode(frame, position)[0], version)
                answer = self._carry_out(endpoint, self._caller, plan, correlation_id, len(frame))
                if isinstance(answer, list):
                    self._answer_bytes += sum(map(len, answer))
                    self._answers += answer
                elif answer:
                    self._answer_bytes += len(answer)
                    self._answers.append(answer)
                return True
            guarded = self._scope.rooms.guarded
            if (
                endpoint.fast_path is not None
                and (not guarded or self._may_pass(endpoint))
                and self._serve_fast(endpoint, frame, position, correlation_id)
            ):
                return True
            # Bytes after the end of the request are passed over, as Kafka does: librdkafka sends three of them when it
            # asks for the metadata of all topics (tests/compat/test_python_clients.py).
            request, _ = endpoint.decode(frame, position)
        except (MalformedFrame, IndexError) as wrong:
            self._reject(f"{_describe(api_key, version)}: {wrong}")
            return True
        endpoint.served += 1
        self.last_request_ms = self._clock.monotonic_ms()
        rooms, caller = self._scope.rooms, self._caller
        handler = endpoint.handle(RequestContext(rooms, caller, self._scope, version), request)
        if guarded and is_metered(rooms.quotas, caller, request):
            handler = metered(rooms.quotas, caller, handler)
        self._step(endpoint, correlation_id, handler)
        return True

    def _may_overlap(self, endpoint: Endpoint) -> bool:
        """Whether a request may be begun while others wait for their answers."""
        waiting = self._waiting
        last = waiting[-1]
        return endpoint.overlaps and last.endpoint.overlaps and not last.holds_order and len(waiting) < MAX_UNANSWERED

    def _may_pass(self, endpoint: Endpoint) -> bool:
        """Whether a node that is guarded is not so against what this one's fast path knows."""
        return endpoint.unmetered and self._scope.rooms.authorizer is None

    def _serve_fast(self, endpoint: Endpoint, frame: memoryview, position: int, correlation_id: int) -> bool:
        """Answer a request of the most common kind; False if it is not, and then nothing was done."""
        assert endpoint.fast_path is not None
        try:
            answer = endpoint.fast_path(self._scope.rooms, frame, position, correlation_id)
        except Exception as error:  # noqa: BLE001 - sorted out by kind
            self._answer_failure(endpoint, correlation_id, error)
            return True
        if answer is None:
            return False
        endpoint.served += 1
        self.last_request_ms = self._clock.monotonic_ms()
        if isinstance(answer, Deferred):
            self._await(endpoint, correlation_id, answer)
        elif self._waiting:
            self._line_up(endpoint, correlation_id, answer)
        elif isinstance(answer, list):
            self._answer_bytes += sum(map(len, answer))
            self._answers += answer
        elif answer:
            self._answers.append(answer)
        return True

    # What is wrong.

    def _compile(self, api_key: int, version: int, correlation_id: int) -> Endpoint | None:
        try:
            return self._scope.endpoints.compile(api_key, version)
        except UnservedRequest as wrong:
            if api_key == ApiKey.API_VERSIONS:
                # Kafka's way to let a newer client find out: the oldest body, and the connection stays.
                body = unsupported_version_answer(self._scope.endpoints.announced)
                self._answers.append(ANSWER.pack(len(body) + 4, correlation_id) + body)
            else:
                self._reject(str(wrong))
            return None

    def _remember_client_id(self, name: memoryview, length: int) -> None:
        if len(name) != length:
            raise MalformedFrame("the client id goes beyond the request")
        raw = bytes(name)
        try:
            self._caller = self._called(raw.decode())
        except UnicodeDecodeError as wrong:
            raise MalformedFrame("the client id is not UTF-8") from wrong
        self._client_id_bytes = raw
        self._cached = None  # What it remembers was asked by somebody else.

    def _called(self, client_id: str | None) -> Caller:
        scope = self._scope
        return Caller(
            address=self._wire.peer_host,
            client_id=client_id,
            listener=scope.name,
            connection_id=self.id,
            authorizer=scope.rooms.authorizer,
            mute=self.mute,
            is_peer=scope.is_for_peers,
        )

    def _reject(self, what: str) -> None:
        log.warning("Closed the connection from %s: it sent %s", self._wire.peer_host, what)
        self._flush_and_close()


def _describe(api_key: int, version: int) -> str:
    try:
        name = ApiKey(api_key).name
    except ValueError:
        name = f"API {api_key}"
    return f"a malformed {name} request (version {version})"
