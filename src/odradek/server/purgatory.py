"""Where requests wait, and the one timer that bounds all waits.

A wait costs a future and a heap entry, never a timer of its own: with thousands of long polls the loop knows one
deadline.
"""

from __future__ import annotations

import asyncio
from heapq import heapify, heappop, heappush
from typing import Protocol

from odradek.ports import Clock

_STALE_BEFORE_SWEEP = 1024


class Expiring(Protocol):
    """Something that ends by itself, or by its deadline; a future will do."""

    def done(self) -> bool: ...

    def set_result(self, result: bool, /) -> None:
        """False: its time is up."""


class Purgatory:
    """Parks a request until it is woken or its deadline has passed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadlines: list[tuple[int, int, Expiring]] = []
        self._sequence = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def __len__(self) -> int:
        return sum(not future.done() for _, _, future in self._deadlines)

    def park(self, *, timeout_ms: int) -> asyncio.Future[bool]:
        """A future that `wake` makes True and the passing of time makes False."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.bound(future, timeout_ms=timeout_ms)
        return future

    def bound(self, waiting: Expiring, *, timeout_ms: int) -> None:
        """Let it end with False when that time has passed."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        self._sequence += 1
        heappush(self._deadlines, (deadline_ms, self._sequence, waiting))
        if len(self._deadlines) > _STALE_BEFORE_SWEEP and self._deadlines[0][2].done():
            self._sweep()
        if self._timer is None or deadline_ms < self._timer_ms:
            self._arm(deadline_ms)

    @staticmethod
    def wake(future: asyncio.Future[bool]) -> None:
        if not future.done():
            future.set_result(True)

    def close(self) -> None:
        """Let everybody go, as if their time were up."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for _, _, future in self._deadlines:
            if not future.done():
                future.set_result(False)
        self._deadlines.clear()

    def _arm(self, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_ms = max(0, deadline_ms - self._clock.monotonic_ms())
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        deadlines = self._deadlines
        while deadlines and (deadlines[0][2].done() or deadlines[0][0] <= now_ms):
            future = heappop(deadlines)[2]
            if not future.done():
                future.set_result(False)
        if deadlines:
            self._arm(deadlines[0][0])

    def _sweep(self) -> None:
        self._deadlines = [entry for entry in self._deadlines if not entry[2].done()]
        heapify(self._deadlines)
