"""Requests that wait for replicas: Produce with acks=all until all in sync have it, DeleteRecords until none has it."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, TypeVar

from odradek.protocol.errors import ErrorCode
from odradek.server.waiting.deferred import Deferred, Woken

if TYPE_CHECKING:
    from odradek.server.partitions.hosted_partition import HostedPartition
    from odradek.server.waiting.purgatory import Purgatory

OutcomeT = TypeVar("OutcomeT")


class AckWait(Deferred[list[OutcomeT]]):
    """The appends of one request that wait for their replicas, and what came of those that do not."""

    __slots__ = ("_has_begun", "_numbers", "outcomes")

    def __init__(self, outcomes: list[OutcomeT]) -> None:
        Deferred.__init__(self)
        self.outcomes = outcomes
        self._numbers: dict[int, None] = {}
        """Of those that are not decided."""
        self._has_begun = False

    @property
    def is_pending(self) -> bool:
        return bool(self._numbers)

    def expect(self, hosted: HostedPartition, number: int, end_offset: int) -> None:
        """Wait until the partition's replicas have everything below that offset, which was just appended."""
        code = hosted.partition.outcome(end_offset)
        if code is None:
            self._numbers[number] = None
            hosted.line_up(self, number, end_offset)
        elif code:
            self.unacknowledged(number, code)

    def begin(self, purgatory: Purgatory, *, timeout_ms: int) -> None:
        """All that is expected is known, and there is something: from here on it may be completed."""
        self._has_begun = True
        purgatory.watch(self, timeout_ms=timeout_ms)

    def acked(self, number: int, code: ErrorCode) -> None:
        """The replicas have that append, or it is decided otherwise."""
        numbers = self._numbers
        if number in numbers:
            del numbers[number]
            if code:
                self.unacknowledged(number, code)
            if self._has_begun and not numbers:
                self.complete(self.outcomes)

    @abstractmethod
    def unacknowledged(self, number: int, code: ErrorCode) -> None:
        """Change the outcome of an append that too few have, or not in time."""

    def expire(self) -> None:
        for number in list(self._numbers):
            self.acked(number, ErrorCode.REQUEST_TIMED_OUT)


class PendingDeletion:
    """A partition whose replicas shall start at an offset."""

    __slots__ = ("_done", "offset", "outcome")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.outcome = ErrorCode.REQUEST_TIMED_OUT
        self._done: Woken | None = None

    def acked(self, outcome: ErrorCode) -> None:
        self.outcome = outcome
        if self._done is not None:
            self._done.wake()

    async def wait(self, hosted: HostedPartition, purgatory: Purgatory, *, timeout_ms: int) -> ErrorCode:
        """What came of it, at the latest when the time is up."""
        hosted.deletions[self] = None
        hosted.on_start_advanced()
        if self in hosted.deletions:
            self._done = purgatory.park(timeout_ms=timeout_ms)
            try:
                await self._done
            finally:
                hosted.deletions.pop(self, None)
        return self.outcome
