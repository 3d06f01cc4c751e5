"""Produce with acks=all to partitions with followers: answered once these have it, without a task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.check import TakesLong
from odradek.server.produce_answers import Outcome, is_transactional, takes_unpacking
from odradek.server.promise import Promise
from odradek.storage.log import AppendInfo
from odradek.storage.validation import AT_ONCE_BYTES, Examined, Origin

if TYPE_CHECKING:
    from odradek.server.hosted import Hosted
    from odradek.server.node import Node

ALL = -1


class PromisedAck(Promise[ErrorCode]):
    """An append that waits for its replicas."""

    __slots__ = ("end_offset",)

    def __init__(self, end_offset: int) -> None:
        Promise.__init__(self)
        self.is_one_of_many = True
        self.end_offset = end_offset

    def settle(self, outcome: ErrorCode) -> None:
        if not self.is_kept:
            self.keep(outcome)

    def done(self) -> bool:
        return self.is_kept

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
    if acks != ALL or not _may_be_promised(hosted, batch):
        return None
    try:
        info = node.replicas.append(hosted, batch, node.world.clock.now_ms(), Origin.CLIENT, True)
    except TakesLong:
        return None
    except KafkaError as error:
        return refuse(error)
    end_offset = info.last_offset + 1
    outcome = hosted.partition.outcome(end_offset)
    if outcome is not None:
        return refuse(KafkaError(outcome)) if outcome else answer(info)
    promise = PromisedAck(end_offset)
    promise.asked = answer(info), refuse
    promise.frame = _frame
    hosted.line_up(promise)
    node.purgatory.bound(promise, timeout_ms=timeout_ms)
    node.woken_fetches.lend((hosted,), (batch,), (info,))
    return promise


def _frame(promise: Promise[ErrorCode], _: int) -> bytes:
    answer: bytes
    answer, refuse = promise.asked
    outcome = promise.result()
    return refuse(KafkaError(outcome)) if outcome else answer


def _may_be_promised(hosted: Hosted, batch: memoryview) -> bool:
    partition = hosted.partition
    return not (
        partition.leadership is None or hosted.is_internal or partition.log.flushes_on_append or is_transactional(batch)
    )


class PartOfPromise:
    """One append of several that are answered together."""

    __slots__ = ("_number", "_together", "end_offset")

    def __init__(self, together: SeveralAcks, number: int, end_offset: int) -> None:
        self.end_offset = end_offset
        self._together = together
        self._number = number

    def settle(self, outcome: ErrorCode) -> None:
        together = self._together
        waiting = together.waiting
        if self._number in waiting:
            del waiting[self._number]
            if outcome:
                together.outcomes[self._number] = KafkaError(outcome)
            if not waiting:
                together.keep(together.outcomes)


class SeveralAcks(Promise[list[Outcome]]):
    """The appends of one request that wait for their replicas, and what came of those that do not."""

    __slots__ = ("outcomes", "waiting")

    def __init__(self, outcomes: list[Outcome]) -> None:
        Promise.__init__(self)
        self.is_one_of_many = True
        self.outcomes = outcomes
        self.waiting: dict[int, PartOfPromise] = {}
        """Those that are not decided, by their numbers."""

    def expect(self, hosted: Hosted, number: int) -> None:
        """Wait for the replicas of that append, unless it was refused, or they have it already."""
        info = self.outcomes[number]
        if isinstance(info, KafkaError):
            return
        end_offset = info.last_offset + 1
        outcome = hosted.partition.outcome(end_offset)
        if outcome is None:
            self.waiting[number] = part = PartOfPromise(self, number, end_offset)
            hosted.line_up(part)
        elif outcome:
            self.outcomes[number] = KafkaError(outcome)

    def done(self) -> bool:
        return not self.waiting

    def set_result(self, result: bool, /) -> None:
        """Its time is up."""
        for part in list(self.waiting.values()):
            part.settle(ErrorCode.REQUEST_TIMED_OUT)


def examined_at_once(hosts: Sequence[Hosted], batches: list[memoryview], now_ms: int) -> list[Examined | None] | None:
    """What a look into those of several batches shows that are compressed; None if it would take long.

    Before the first is appended: nobody knows how much comes out of a compressed batch, and halfway through there is
    no way back. Nor may a batch be changed by then, which the declared way has to find as it came.
    """
    try:
        return [
            hosted.partition.log.examine(memoryview(bytearray(batch)), now_ms, AT_ONCE_BYTES)
            if takes_unpacking(batch)
            else None
            for hosted, batch in zip(hosts, batches, strict=True)
        ]
    except TakesLong:
        return None


def append_several_for_all(
    node: Node,
    hosts: list[Hosted | None],
    batches: list[memoryview],
    timeout_ms: int,
    answer: Callable[[list[Outcome]], bytes],
) -> bytes | Promise[list[Outcome]] | None:
    """As `append_for_all`, for a batch each to several partitions."""
    for hosted, batch in zip(hosts, batches, strict=True):
        if hosted is None or not _may_be_promised(hosted, batch):
            return None
    led = cast("list[Hosted]", hosts)
    append = node.replicas.append
    now_ms = node.world.clock.now_ms()
    examined = examined_at_once(led, batches, now_ms)
    if examined is None:
        return None
    outcomes: list[Outcome] = []
    for hosted, batch, known in zip(led, batches, examined, strict=True):
        try:
            outcomes.append(append(hosted, batch, now_ms, Origin.CLIENT, True, known))
        except KafkaError as error:
            outcomes.append(error)
    promise = SeveralAcks(outcomes)
    for number, hosted in enumerate(led):
        promise.expect(hosted, number)
    if promise.done():
        return answer(outcomes)
    promise.asked = answer
    promise.frame = _frame_of_several
    node.purgatory.bound(promise, timeout_ms=timeout_ms)
    written = [batch if known is None else known.batch for batch, known in zip(batches, examined, strict=True)]
    node.woken_fetches.lend(led, written, outcomes)
    return promise


def _frame_of_several(promise: Promise[list[Outcome]], _: int) -> bytes:
    framed: bytes = promise.asked(promise.result())
    return framed
