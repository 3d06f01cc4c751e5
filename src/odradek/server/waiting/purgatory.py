"""Where requests wait, and the one timer that bounds all waits.

A wait costs a place in a line, never a timer of its own: with thousands of long polls the loop knows one deadline.
"""

from __future__ import annotations

import asyncio
from collections import deque
from heapq import heapify, heappop, heappush
from typing import Any, TypeAlias

from odradek.ports import Clock
from odradek.server.containment import Containment, Cost
from odradek.server.waiting.deferred import Deferred, Woken

_SWEEP_EVERY = 1024
"""So many in one line, or lines: what has ended is looked for behind those that have not."""


_Line: TypeAlias = "deque[tuple[int, Deferred[Any]]]"
"""Those who may wait equally long, with their deadlines: who came first is due first."""


class Purgatory:
    """Parks a request until it is woken or its deadline has passed.

    Clients have few timeouts and many requests, so there is a line for each timeout. What has ended leaves the front
    of its line when the next one comes, mostly a moment later: its memory is used again while the processor still has
    it at hand, which a thousand ended requests in one heap would spoil.
    """

    def __init__(self, clock: Clock, containment: Containment) -> None:
        self._clock = clock
        self._containment = containment
        self._lines: dict[int, _Line] = {}
        """By timeout."""
        self._due: list[tuple[int, int]] = []
        """A heap with an entry for each line: when to look at it, which is never too late, and its timeout."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def __len__(self) -> int:
        return sum(not waiting.is_done for line in self._lines.values() for _, waiting in line)

    def park(self, *, timeout_ms: int) -> Woken:
        """A wait that `wake` makes True and the passing of time makes False."""
        woken = Woken()
        self.watch(woken, timeout_ms=timeout_ms)
        return woken

    def watch(self, waiting: Deferred[Any], *, timeout_ms: int) -> None:
        """Let it expire when that time has passed, unless it is done by then."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        line = self._lines.get(timeout_ms)
        if line is None:
            if len(self._lines) % _SWEEP_EVERY == _SWEEP_EVERY - 1:
                self._sweep()  # Somebody never waits equally long twice.
            self._lines[timeout_ms] = deque(((deadline_ms, waiting),))
            heappush(self._due, (deadline_ms, timeout_ms))
            if self._timer is None or deadline_ms < self._timer_ms:
                self._arm(deadline_ms)
            return
        while line and line[0][1].is_done:
            line.popleft()
        line.append((deadline_ms, waiting))
        if not len(line) % _SWEEP_EVERY:
            _let_go_of_ended(line)

    def close(self) -> None:
        """Let everybody go, as if their time were up."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lines, self._lines = self._lines, {}
        self._due.clear()
        for line in lines.values():
            for _, waiting in line:
                if not waiting.is_done:
                    waiting.expire()

    def _arm(self, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_ms = max(0, deadline_ms - self._clock.monotonic_ms())
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        due = self._due
        late: list[Deferred[Any]] = []
        while due and due[0][0] <= now_ms:
            _, timeout_ms = heappop(due)
            line = self._lines[timeout_ms]
            while line and (line[0][1].is_done or line[0][0] <= now_ms):
                late.append(line.popleft()[1])
            if line:
                heappush(due, (line[0][0], timeout_ms))
            else:
                del self._lines[timeout_ms]
        if due:
            self._arm(due[0][0])
        # Last, because who is let go may wait again at once.
        for waiting in late:
            if not waiting.is_done:
                with self._containment.at_most(Cost.REQUEST, "its time is up"):
                    waiting.expire()

    def _sweep(self) -> None:
        """Let go of lines in which nobody waits any more, however long they would have waited."""
        for line in self._lines.values():
            _let_go_of_ended(line)
        self._lines = {timeout_ms: line for timeout_ms, line in self._lines.items() if line}
        self._due = [(line[0][0], timeout_ms) for timeout_ms, line in self._lines.items()]
        heapify(self._due)


def _let_go_of_ended(line: _Line) -> None:
    """Also behind one that has not ended."""
    alive = [entry for entry in line if not entry[1].is_done]
    line.clear()
    line.extend(alive)
