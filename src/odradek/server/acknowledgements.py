"""Produce requests with acks=all, which wait until every in-sync replica has what they brought."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.server.hosted import Hosted
    from odradek.server.purgatory import Purgatory


class PendingAck:
    """One partition's part of a request."""

    __slots__ = ("_request", "end_offset", "outcome")

    def __init__(self, request: Acknowledgements, end_offset: int) -> None:
        self.end_offset = end_offset
        self.outcome = ErrorCode.REQUEST_TIMED_OUT
        """What to answer; this, if nobody says otherwise in time."""
        self._request = request

    def settle(self, outcome: ErrorCode) -> None:
        self.outcome = outcome
        self._request.one_settled()


class Acknowledgements:
    """All that one request waits for."""

    __slots__ = ("_open", "_waiter")

    def __init__(self) -> None:
        self._open = 0
        self._waiter: asyncio.Future[bool] | None = None

    def expect(self, hosted: Hosted, end_offset: int) -> PendingAck:
        """Wait until the partition's replicas have everything below that offset, which was just appended."""
        pending = PendingAck(self, end_offset)
        outcome = hosted.partition.outcome(end_offset)
        if outcome is None:
            self._open += 1
            hosted.unacknowledged.append(pending)
        else:
            pending.outcome = outcome
        return pending

    def one_settled(self) -> None:
        self._open -= 1
        if not self._open and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    async def wait(self, purgatory: Purgatory, *, timeout_ms: int) -> None:
        """Come back when each has its outcome, or when the time is up."""
        if self._open:
            self._waiter = purgatory.park(timeout_ms=timeout_ms)
            try:
                await self._waiter
            finally:
                if not self._waiter.done():
                    self._waiter.cancel()
