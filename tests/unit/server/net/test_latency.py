"""Quantiles out of a few integers."""

from __future__ import annotations

from odradek.server.net.latency import Latencies


def test_requests_that_never_waited_took_no_time() -> None:
    assert Latencies().quantile(0.999, served=1_000) == 0.0
    assert Latencies().quantile(0.5, served=0) == 0.0


def test_those_that_waited_count_from_the_top() -> None:
    latencies = Latencies()
    for _ in range(10):
        latencies.note(100)
    assert latencies.quantile(0.5, served=100) == 0.0
    assert latencies.quantile(0.95, served=100) == 127.0
    latencies.note(5_000)
    assert latencies.quantile(0.999, served=101) == 8_191.0


def test_a_clock_that_jumps_and_waits_beyond_all_bounds_are_counted() -> None:
    latencies = Latencies()
    latencies.note(-5)
    latencies.note(1 << 40)
    assert latencies.waited == 2
    assert latencies.quantile(0.5, served=2) == 0.0
    assert latencies.quantile(0.99, served=2) > 1 << 22
