"""Produce of one batch with acks=all to a partition with followers: answered once they have it, without a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.server.handlers.quick_produce import is_transactional
from odradek.server.promise import Promise
from odradek.storage.log import AppendInfo

if TYPE_CHECKING:
    from odradek.server.hosted import Hosted
    from odradek.server.node import Node

ALL = -1


class PromisedAck:
    """An append that waits for its replicas."""

    __slots__ = ("_promise", "_settled", "end_offset")

    def __init__(self, promise: Promise[ErrorCode], end_offset: int) -> None:
        self.end_offset = end_offset
        self._promise = promise
        self._settled = False

    def settle(self, outcome: ErrorCode) -> None:
        if not self._settled:
            self._settled = True
            self._promise.keep(outcome)

    def done(self) -> bool:
        return self._settled

    def set_result(self, result: bool, /) -> None:
        """Its time is up."""
        self.settle(ErrorCode.REQUEST_TIMED_OUT)


def append_for_all(
    node: Node,
    hosted: Hosted,
    batch: memoryview,
    *,
    acks: int,
    timeout_ms: int,
    answer: Callable[[AppendInfo], bytes],
    refuse: Callable[[KafkaError], bytes],
) -> bytes | Promise[ErrorCode] | None:
    """Append, and promise the answer; None, and nothing done, if the declared way has to see to it."""
    if (
        acks != ALL
        or hosted.partition.leadership is None
        or hosted.is_internal
        or hosted.partition.log.flushes_on_append
        or is_transactional(batch)
    ):
        return None
    try:
        info = node.replicas.append(hosted, batch, now_ms=node.world.clock.now_ms(), for_all=True)
    except KafkaError as error:
        return refuse(error)
    end_offset = info.last_offset + 1
    outcome = hosted.partition.outcome(end_offset)
    if outcome is not None:
        return refuse(KafkaError(outcome)) if outcome else answer(info)
    promise: Promise[ErrorCode] = Promise()
    promise.is_one_of_many = True
    promise.asked = answer(info), refuse
    promise.frame = _frame
    pending = PromisedAck(promise, end_offset)
    hosted.unacknowledged.append(pending)
    node.purgatory.bound(pending, timeout_ms=timeout_ms)
    return promise


def _frame(promise: Promise[ErrorCode], _: int) -> bytes:
    answer: bytes
    answer, refuse = promise.asked
    outcome = promise.result()
    return refuse(KafkaError(outcome)) if outcome else answer
