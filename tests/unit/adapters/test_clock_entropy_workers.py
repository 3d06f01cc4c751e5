"""The small adapters: time, randomness, threads."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from odradek.adapters.clock import SystemClock
from odradek.adapters.entropy import SystemEntropy
from odradek.adapters.workers import MAX_THREADS, ThreadWorkers


def test_the_clock_tells_wall_and_monotonic_milliseconds() -> None:
    clock = SystemClock()
    assert abs(clock.now_ms() - time.time() * 1000) < 5_000
    assert abs(clock.monotonic_ms() - time.monotonic() * 1000) < 5_000


def test_entropy_draws_every_number_below_the_bound() -> None:
    entropy = SystemEntropy()
    for bound in (1, 2, 3, 5, 8, 9):
        drawn = {entropy.below(bound) for _ in range(400)}
        assert drawn == set(range(bound))
    assert entropy.below(1 << 64) < 1 << 64
    assert len(entropy.random_bytes(16)) == 16
    assert entropy.random_bytes(16) != entropy.random_bytes(16)
    with pytest.raises(ValueError, match="no number"):
        entropy.below(0)


def test_workers_run_jobs_on_a_few_threads_and_return_what_they_return() -> None:
    workers = ThreadWorkers()
    others = threading.enumerate()
    here = threading.get_ident()
    seen: set[int] = set()

    def job(number: int) -> int:
        seen.add(threading.get_ident())
        if number == 13:
            raise OSError("disk on fire")
        return number * number

    async def run() -> list[int | BaseException]:
        return await asyncio.gather(*(workers.run(lambda n=n: job(n)) for n in range(20)), return_exceptions=True)

    results = asyncio.run(run())
    assert [result for result in results if isinstance(result, int)] == [n * n for n in range(20) if n != 13]
    assert isinstance(results[13], OSError)
    assert here not in seen
    assert 1 <= len(seen) <= MAX_THREADS
    workers.close()
    workers.close()
    assert [thread for thread in threading.enumerate() if thread not in others] == []
