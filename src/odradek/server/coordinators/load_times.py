"""How long it took lately until coordinators had loaded what they took over."""

from __future__ import annotations

from collections import deque
from math import nan

from odradek.ports import Clock

WINDOW_MS = 30_000
"""What `lately` is, as in Kafka's partition-load-time-max and -avg."""


class LoadTimes:
    """Of one kind of coordinators."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._taken: deque[tuple[int, int]] = deque()
        """When each load ended, and the milliseconds that it took."""

    def note(self, *, began_ms: int) -> None:
        now_ms = self._clock.monotonic_ms()
        self._taken.append((now_ms, now_ms - began_ms))
        self._forget(now_ms)

    def recent(self) -> tuple[float, float]:
        """The longest and the mean; not a number where nothing was loaded."""
        self._forget(self._clock.monotonic_ms())
        taken = [took_ms for _, took_ms in self._taken]
        return (max(taken), sum(taken) / len(taken)) if taken else (nan, nan)

    def _forget(self, now_ms: int) -> None:
        while self._taken and self._taken[0][0] < now_ms - WINDOW_MS:
            self._taken.popleft()
