"""Made-up time."""

from __future__ import annotations

from odradek.sim.loop import SimulatedLoop

FIRST_MS = 1_700_000_000_000
"""Wall time when a run begins: a real-looking date, so that retention and timestamps have something to work with."""


class SimulatedClock:
    """The loop's time; the wall clock may be set forward or back under a node's feet."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.wall_offset_ms = 0

    def now_ms(self) -> int:
        return FIRST_MS + self.wall_offset_ms + self._loop.now_us // 1000

    def monotonic_ms(self) -> int:
        return self._loop.now_us // 1000
