from __future__ import annotations

from math import isnan

from odradek.server.coordinators.load_times import WINDOW_MS, LoadTimes


class Clock:
    """At the moment that a test says."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        raise AssertionError("what the calendar says matters to no span")

    def monotonic_ms(self) -> int:
        return self.ms


def test_the_longest_and_the_mean_of_what_was_loaded_lately() -> None:
    clock = Clock()
    times = LoadTimes(clock)
    assert all(map(isnan, times.recent()))
    for took_ms in (10, 40):
        times.note(began_ms=clock.ms - took_ms)
    assert times.recent() == (40, 25)
    clock.ms += WINDOW_MS // 2
    times.note(began_ms=clock.ms - 4)
    assert times.recent() == (40, 18)
    clock.ms += WINDOW_MS // 2 + 1
    assert times.recent() == (4, 4)
    clock.ms += WINDOW_MS
    assert all(map(isnan, times.recent()))
