"""Requests that wait for replicas: Produce with acks=all until all in sync have it, DeleteRecords until none has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from odradek.protocol.errors import ErrorCode
from odradek.server.waiting.deferred import Woken

if TYPE_CHECKING:
    from odradek.server.partitions.hosted_partition import HostedPartition
    from odradek.server.waiting.purgatory import Purgatory


class Ack(Protocol):
    """An append that waits for its replicas."""

    end_offset: int

    def acked(self, outcome: ErrorCode) -> None:
        """They have everything below `end_offset`, or it is decided otherwise."""


class PendingAck:
    """One partition's part of a request."""

    __slots__ = ("_request", "end_offset", "outcome")

    def __init__(self, request: Acknowledgements, end_offset: int) -> None:
        self.end_offset = end_offset
        self.outcome = ErrorCode.REQUEST_TIMED_OUT
        """What to answer; this, if nobody says otherwise in time."""
        self._request = request

    def acked(self, outcome: ErrorCode) -> None:
        self.outcome = outcome
        self._request.one_acked()


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


class Acknowledgements:
    """All that one request waits for."""

    __slots__ = ("_open", "_waiter")

    def __init__(self) -> None:
        self._open = 0
        self._waiter: Woken | None = None

    def expect(self, hosted: HostedPartition, end_offset: int) -> PendingAck:
        """Wait until the partition's replicas have everything below that offset, which was just appended."""
        pending = PendingAck(self, end_offset)
        outcome = hosted.partition.outcome(end_offset)
        if outcome is None:
            self._open += 1
            hosted.line_up(pending)
        else:
            pending.outcome = outcome
        return pending

    def one_acked(self) -> None:
        self._open -= 1
        if not self._open and self._waiter is not None:
            self._waiter.wake()

    async def wait(self, purgatory: Purgatory, *, timeout_ms: int) -> None:
        """Come back when each has its outcome, or when the time is up."""
        if self._open:
            self._waiter = purgatory.park(timeout_ms=timeout_ms)
            await self._waiter
