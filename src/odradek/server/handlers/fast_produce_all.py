"""Produce with acks=all to partitions with followers: answered once these have it, without a task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.check import TakesLong
from odradek.server.handlers.produce_answers import Outcome, Unacknowledged, is_transactional, takes_unpacking
from odradek.server.waiting.deferred import Deferred
from odradek.storage.log import AppendInfo
from odradek.storage.validation import AT_ONCE_BYTES, Examined, Origin

if TYPE_CHECKING:
    from odradek.server.partitions.hosted_partition import HostedPartition
    from odradek.server.rooms import Rooms

ALL = -1


class PromisedAck(Deferred[ErrorCode]):
    """An append that waits for its replicas."""

    __slots__ = ("end_offset",)

    def __init__(self, end_offset: int) -> None:
        Deferred.__init__(self)
        self.end_offset = end_offset

    def acked(self, outcome: ErrorCode) -> None:
        if not self.is_done:
            self.complete(outcome)

    def expire(self) -> None:
        self.acked(ErrorCode.REQUEST_TIMED_OUT)


def append_acks_all(
    rooms: Rooms,
    hosted: HostedPartition,
    batch: memoryview,
    *,
    acks: int,
    timeout_ms: int,
    answer: Callable[[AppendInfo], bytes],
    refuse: Callable[[KafkaError], bytes],
) -> bytes | Deferred[ErrorCode] | None:
    """Append, and defer the answer; None, and nothing done, if the generic path has to see to it."""
    if acks != ALL or not _may_be_promised(hosted, batch):
        return None
    try:
        info = rooms.replicas.append(hosted, batch, rooms.world.clock.now_ms(), Origin.CLIENT, True)
    except TakesLong:
        return None
    except KafkaError as error:
        return refuse(error)
    end_offset = info.last_offset + 1
    outcome = hosted.partition.outcome(end_offset)
    if outcome is not None:
        return refuse(Unacknowledged(outcome, info)) if outcome else answer(info)
    deferred = PromisedAck(end_offset)
    deferred.asked = answer(info), lambda code: refuse(Unacknowledged(code, info))
    deferred.frame = _frame
    hosted.line_up(deferred)
    rooms.purgatory.watch(deferred, timeout_ms=timeout_ms)
    rooms.fetch_wakeups.lend((hosted,), (batch,), (info,))
    return deferred


def _frame(deferred: Deferred[ErrorCode], _: int) -> bytes:
    answer: bytes
    answer, refuse = deferred.asked
    outcome = deferred.result()
    return refuse(outcome) if outcome else answer


def _may_be_promised(hosted: HostedPartition, batch: memoryview) -> bool:
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

    def acked(self, outcome: ErrorCode) -> None:
        together = self._together
        waiting = together.waiting
        if self._number in waiting:
            del waiting[self._number]
            if outcome:
                together.refuse(self._number, outcome)
            if not waiting:
                together.complete(together.outcomes)


class SeveralAcks(Deferred[list[Outcome]]):
    """The appends of one request that wait for their replicas, and what came of those that do not."""

    __slots__ = ("outcomes", "waiting")

    def __init__(self, outcomes: list[Outcome]) -> None:
        Deferred.__init__(self)
        self.outcomes = outcomes
        self.waiting: dict[int, PartOfPromise] = {}
        """Those that are not decided, by their numbers."""

    def expect(self, hosted: HostedPartition, number: int) -> None:
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
            self.refuse(number, outcome)

    def refuse(self, number: int, code: ErrorCode) -> None:
        info = self.outcomes[number]
        assert not isinstance(info, KafkaError), "an append has one outcome"
        self.outcomes[number] = Unacknowledged(code, info)

    def expire(self) -> None:
        for part in list(self.waiting.values()):
            part.acked(ErrorCode.REQUEST_TIMED_OUT)


def examined_at_once(
    hosts: Sequence[HostedPartition], batches: list[memoryview], now_ms: int
) -> list[Examined | None] | None:
    """What a look into those of several batches shows that are compressed; None if it would take long.

    Before the first is appended: nobody knows how much comes out of a compressed batch, and halfway through there is
    no way back. Nor may a batch be changed by then, which the generic path has to find as it came.
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


def append_several_acks_all(
    rooms: Rooms,
    hosts: list[HostedPartition | None],
    batches: list[memoryview],
    timeout_ms: int,
    answer: Callable[[list[Outcome]], bytes],
) -> bytes | Deferred[list[Outcome]] | None:
    """As `append_acks_all`, for a batch each to several partitions."""
    for hosted, batch in zip(hosts, batches, strict=True):
        if hosted is None or not _may_be_promised(hosted, batch):
            return None
    led = cast("list[HostedPartition]", hosts)
    append = rooms.replicas.append
    now_ms = rooms.world.clock.now_ms()
    examined = examined_at_once(led, batches, now_ms)
    if examined is None:
        return None
    outcomes: list[Outcome] = []
    for hosted, batch, known in zip(led, batches, examined, strict=True):
        try:
            outcomes.append(append(hosted, batch, now_ms, Origin.CLIENT, True, known))
        except KafkaError as error:
            outcomes.append(error)
    deferred = SeveralAcks(outcomes)
    for number, hosted in enumerate(led):
        deferred.expect(hosted, number)
    if not deferred.waiting:
        return answer(outcomes)
    deferred.asked = answer
    deferred.frame = _frame_of_several
    rooms.purgatory.watch(deferred, timeout_ms=timeout_ms)
    written = [batch if known is None else known.batch for batch, known in zip(batches, examined, strict=True)]
    rooms.fetch_wakeups.lend(led, written, outcomes)
    return deferred


def _frame_of_several(deferred: Deferred[list[Outcome]], _: int) -> bytes:
    framed: bytes = deferred.asked(deferred.result())
    return framed
