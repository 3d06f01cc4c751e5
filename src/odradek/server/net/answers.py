"""The answers of one connection: they leave in the order of the requests, gathered into one send per turn of the loop.

A request that is not answered at once has a place in the line; what is answered behind it waits for it there.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Coroutine
from functools import partial
from struct import Struct
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from odradek.ports import Part, Wire
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.server.access.quotas import charge
from odradek.server.containment import Cost
from odradek.server.net.dispatch import Endpoint
from odradek.server.waiting.deferred import Deferred
from odradek.server.waiting.stepped import Stepped

if TYPE_CHECKING:
    from odradek.server.access.caller import Caller
    from odradek.server.net.listener import ListenerScope
    from odradek.server.net.routes import Plan

log = logging.getLogger(__name__)

ANSWER = Struct(">ii")
_FLEXIBLE_ANSWER = Struct(">iiB")

_LATER = (Deferred, CoroutineType)
"""What a handler of plans returns that has no outcome yet."""


class Slot:
    """The place in the line of one request that was not answered at once."""

    __slots__ = (
        "caller",
        "correlation_id",
        "deferred",
        "endpoint",
        "handler",
        "holds_order",
        "parts",
        "plan",
        "request_bytes",
        "since_ms",
        "spent_ms",
    )

    def __init__(self, endpoint: Endpoint, correlation_id: int, since_ms: int) -> None:
        self.endpoint = endpoint
        self.since_ms = since_ms
        self.correlation_id = correlation_id
        self.parts: list[Part] | None = None
        self.handler: Stepped[Any] | None = None
        self.deferred: Deferred[Any] | None = None
        """What it waits for without a handler."""
        self.plan: Plan | None = None
        """What it asks for, and who; which of the two ways to answer a deferred has depends on it."""
        self.caller: Caller | None = None
        self.spent_ms = 0
        """How long the loop was kept by it, as far as quotas want to know;"""
        self.request_bytes = 0
        """and how large it was, with its header."""
        self.holds_order = False
        """Whether what comes behind it may not begin, because it has yet to append."""


class Answers(ABC):
    """The half of a connection that answers; `Connection` is the whole, and one object: no request pays for the two."""

    __slots__ = (
        "_answer_bytes",
        "_answers",
        "_clock",
        "_closed",
        "_closed_here",
        "_paused",
        "_scope",
        "_sends_soon",
        "_waiting",
        "_wire",
        "last_request_ms",
    )

    def __init__(self, scope: ListenerScope, wire: Wire) -> None:
        self._scope = scope
        self._wire = wire
        self._clock = scope.rooms.world.clock
        self._answers: list[Part] = []
        self._answer_bytes = 0
        self._waiting: deque[Slot] = deque()
        self._sends_soon = False
        """Whether answers that were made one by one leave together at the end of this turn."""
        self._paused = False
        """Whether nothing is read at present."""
        self._closed = False
        self._closed_here = False
        """Whether this node has closed it, and not the peer."""
        self.last_request_ms = self._clock.monotonic_ms()

    @abstractmethod
    def _serve_frames(self) -> None:
        """Go on with what has come."""

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    @property
    def peer_host(self) -> str:
        return self._wire.peer_host

    def widen(self) -> None:
        """As `Wire.widen`: another broker reads here."""
        self._wire.widen()

    def close(self) -> None:
        self._closed_here = True
        self._wire.close()

    def stepped(self) -> list[Stepped[Any]]:
        """The handlers that wait for something."""
        return [slot.handler for slot in self._waiting if slot.handler is not None]

    # Of requests that wait.

    def _await(self, endpoint: Endpoint, correlation_id: int, deferred: Deferred[Any]) -> None:
        slot = Slot(endpoint, correlation_id, self.last_request_ms)
        self._waiting.append(slot)
        self._wait_for(slot, deferred)

    def _wait_for(self, slot: Slot, deferred: Deferred[Any]) -> None:
        slot.deferred = deferred
        deferred.on_done = self._deferred_done

    def _deferred_done(self, deferred: Deferred[Any]) -> None:
        """Answer; whoever brought the answer is in the middle of its own work, so that nothing else is begun."""
        waiting = self._waiting
        for slot in waiting:
            if slot.deferred is deferred:
                break
        assert slot.deferred is deferred
        slot.endpoint.latencies.note(self._clock.monotonic_ms() - slot.since_ms)
        try:
            if slot.plan is not None:
                answer = self._write(slot, deferred.result())
            else:
                assert deferred.frame is not None
                answer = deferred.frame(deferred, slot.correlation_id)
        except Exception as error:  # noqa: BLE001 - sorted out by kind
            response = self._failure_answer(slot.endpoint, error)
            if response is None:
                return
            answer = self._encode(slot.endpoint, slot.correlation_id, response)
        parts = _parts(answer)
        if slot.endpoint.overlaps:  # Others of its kind are likely to be done in the same breath: they leave together.
            slot.parts = parts
            if not self._sends_soon:
                self._sends_soon = True
                asyncio.get_running_loop().call_soon(self._send_gathered)
            return
        if len(waiting) == 1 and not self._answers:
            waiting.popleft()
            self._wire.send(parts)
        else:
            slot.parts = parts
            self._send_finished()
        if self._paused and not self._closed:
            asyncio.get_running_loop().call_soon(self._serve_held_frames)

    def _send_gathered(self) -> None:
        self._sends_soon = False
        if not self._closed:
            self._send_finished()
            self._serve_held_frames()

    def _serve_held_frames(self) -> None:
        if self._paused and not self._closed:
            self._serve_frames()

    def _carry_out(
        self, endpoint: Endpoint, caller: Caller, plan: Plan, correlation_id: int, request_bytes: int
    ) -> bytes | list[Part]:
        """Do what a plan says; what to send of it now, which is nothing while others wait for their answers."""
        endpoint.served += 1
        self.last_request_ms = began_ms = self._clock.monotonic_ms()
        rooms = self._scope.rooms
        is_metered = rooms.quotas.active and not caller.is_peer
        try:
            outcome = endpoint.handle(rooms, caller, plan)
            if not (self._waiting or is_metered or isinstance(outcome, _LATER)):
                assert endpoint.write is not None
                return endpoint.write(plan, outcome, correlation_id)
            slot = Slot(endpoint, correlation_id, began_ms)
            slot.plan, slot.caller, slot.request_bytes = plan, caller, request_bytes
            awaited = None
            if isinstance(outcome, CoroutineType):
                coroutine = outcome
                try:
                    awaited = coroutine.send(None)
                except StopIteration as done:
                    outcome = done.value
            if is_metered:
                slot.spent_ms = self._clock.monotonic_ms() - began_ms
            if awaited is not None:
                slot.holds_order = True
                slot.handler = Stepped(coroutine, awaited, partial(self._carried_out, slot))
            elif isinstance(outcome, Deferred) and not outcome.is_done:
                self._wait_for(slot, outcome)
            else:
                answer = self._write(slot, outcome.result() if isinstance(outcome, Deferred) else outcome)
                if not self._waiting:
                    return answer
                slot.parts = _parts(answer)
            self._waiting.append(slot)
        except Exception as error:  # noqa: BLE001 - sorted out by kind
            self._answer_failure(endpoint, correlation_id, error)
        return b""

    def _carried_out(self, slot: Slot, handler: Stepped[Any]) -> None:
        """A plan that had to wait before it could be begun in earnest has come to its outcome, or waits for that."""
        slot.handler = None
        slot.holds_order = False
        if self._closed:
            return
        outcome = handler.result
        if handler.failure is None and isinstance(outcome, Deferred) and not outcome.is_done:
            self._wait_for(slot, outcome)
        else:
            slot.endpoint.latencies.note(self._clock.monotonic_ms() - slot.since_ms)
            try:
                if handler.failure is not None:
                    raise handler.failure
                slot.parts = _parts(self._write(slot, outcome.result() if isinstance(outcome, Deferred) else outcome))
            except Exception as error:  # noqa: BLE001 - sorted out by kind
                response = self._failure_answer(slot.endpoint, error)
                if response is None:
                    return
                slot.parts = self._encode(slot.endpoint, slot.correlation_id, response)
            self._send_finished()
        self._serve_held_frames()

    def _write(self, slot: Slot, outcome: Any) -> bytes | list[Part]:
        """The answer to a plan, for which its client has paid."""
        endpoint, plan, caller = slot.endpoint, slot.plan, slot.caller
        assert endpoint.write is not None
        assert plan is not None
        assert caller is not None
        quotas = self._scope.rooms.quotas
        if quotas.active and not caller.is_peer and endpoint.quota_use is not None:
            use = endpoint.quota_use(plan, outcome, slot.request_bytes)
            if use is not None:
                plan.throttle_ms = charge(quotas, caller, slot.spent_ms, use)
                if plan.throttle_ms:
                    caller.mute(plan.throttle_ms)
        return endpoint.write(plan, outcome, slot.correlation_id)

    def _step(self, endpoint: Endpoint, correlation_id: int, handler: Coroutine[Any, Any, Message | None]) -> None:
        try:
            awaited = handler.send(None)
        except StopIteration as done:
            self._answer(endpoint, correlation_id, done.value)
        except Exception as error:  # noqa: BLE001 - sorted out by kind
            self._answer_failure(endpoint, correlation_id, error)
        else:
            slot = Slot(endpoint, correlation_id, self.last_request_ms)
            self._waiting.append(slot)
            slot.handler = Stepped(handler, awaited, partial(self._finish, slot))

    def _finish(self, slot: Slot, handler: Stepped[Message | None]) -> None:
        slot.handler = None  # They know each other, and nobody should have to find that out.
        if self._closed:
            return
        slot.endpoint.latencies.note(self._clock.monotonic_ms() - slot.since_ms)
        response = handler.result
        if handler.failure is not None:
            response = self._failure_answer(slot.endpoint, handler.failure)
            if response is None:
                return
        slot.parts = [] if response is None else self._encode(slot.endpoint, slot.correlation_id, response)
        self._send_finished()
        self._serve_held_frames()

    # In their order.

    def _send_finished(self) -> None:
        """What is answered and has no unanswered request before it."""
        waiting = self._waiting
        while waiting and waiting[0].parts is not None:
            self._answers.extend(waiting.popleft().parts or ())
        if self._answers:
            self._flush()

    def _answer(self, endpoint: Endpoint, correlation_id: int, response: Message | None) -> None:
        parts = [] if response is None else self._encode(endpoint, correlation_id, response)
        if self._waiting:
            self._line_up(endpoint, correlation_id, parts)
        else:
            self._answers.extend(parts)

    def _line_up(self, endpoint: Endpoint, correlation_id: int, answer: bytes | list[Part]) -> None:
        """It is answered, but others before it are not."""
        slot = Slot(endpoint, correlation_id, self.last_request_ms)
        slot.parts = _parts(answer)
        self._waiting.append(slot)

    def _encode(self, endpoint: Endpoint, correlation_id: int, response: Message) -> list[Part]:
        try:
            parts = endpoint.encode(response)
        except Exception as error:  # noqa: BLE001 - whatever it is
            self._scope.rooms.containment.note(Cost.REQUEST, "its answer cannot be encoded", error)
            self.close()
            return []
        size = sum(map(len, parts)) if len(parts) > 1 else len(parts[0])
        self._answer_bytes += size
        if endpoint.flexible_response:
            header = _FLEXIBLE_ANSWER.pack(size + 5, correlation_id, 0)
        else:
            header = ANSWER.pack(size + 4, correlation_id)
        first = parts[0]
        if isinstance(first, bytes):
            parts[0] = header + first
        else:
            parts.insert(0, header)
        return parts

    def _flush(self) -> None:
        answers, self._answers = self._answers, []
        self._answer_bytes = 0
        self._wire.send(answers)

    def _flush_and_close(self) -> None:
        if self._answers:
            self._flush()
        if not self._closed:
            self.close()

    # Of requests that failed.

    def _answer_failure(self, endpoint: Endpoint, correlation_id: int, error: Exception) -> None:
        response = self._failure_answer(endpoint, error)
        if response is not None:
            self._answer(endpoint, correlation_id, response)

    def _failure_answer(self, endpoint: Endpoint, error: BaseException) -> Message | None:
        """The answer to a request that raised, if the protocol has one; else its connection is closed."""
        if not isinstance(error, KafkaError):
            self._scope.rooms.containment.note(Cost.REQUEST, f"from {self._wire.peer_host}", error)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if endpoint.error_answer is not None:
            return endpoint.error_answer(error.code, str(error))
        log.warning("Closed the connection from %s: %s", self._wire.peer_host, error)
        self.close()
        return None


def _parts(answer: bytes | list[Part]) -> list[Part]:
    return answer if isinstance(answer, list) else [answer] if answer else []
