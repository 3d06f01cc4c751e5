"""Made-up workers: jobs take time, others run meanwhile, and the same seed takes the same time."""

from __future__ import annotations

import asyncio
import random

import pytest

from odradek.sim.clock import FIRST_MS, SimulatedClock
from odradek.sim.entropy import SimulatedEntropy
from odradek.sim.loop import Life, SimulatedLoop
from odradek.sim.workers import SimulatedWorkers


def run_jobs(seed: int) -> list[str]:
    loop = SimulatedLoop()
    life = Life("node")
    workers = SimulatedWorkers(life, random.Random(seed))
    seen: list[str] = []

    async def run(name: str) -> None:
        seen.append(await workers.run(lambda: f"{name} {loop.now_us}"))
        seen.append(f"{name} done {loop.now_us}")

    async def fail() -> None:
        with pytest.raises(OSError, match="broken"):
            await workers.run(lambda: (_ for _ in ()).throw(OSError("broken")))

    async def all_of_them() -> None:
        await asyncio.gather(run("a"), run("b"), run("c"), fail())

    loop.run_until_complete(all_of_them())
    return seen


def test_jobs_take_time_that_the_seed_draws() -> None:
    assert run_jobs(1) == run_jobs(1)
    assert len({tuple(run_jobs(seed)) for seed in range(10)}) == 10
    assert len({tuple(line.split()[0] for line in run_jobs(seed)) for seed in range(30)}) > 3


def test_clock_and_entropy_are_the_seeds() -> None:
    loop = SimulatedLoop()
    clock = SimulatedClock(loop)
    loop.run_until_complete(asyncio.sleep(2.5))
    assert (clock.monotonic_ms(), clock.now_ms()) == (2500, FIRST_MS + 2500)
    clock.wall_offset_ms -= 10_000
    assert (clock.monotonic_ms(), clock.now_ms()) == (2500, FIRST_MS - 7500)
    one, same = (SimulatedEntropy(random.Random("9/entropy")) for _ in range(2))
    assert one.random_bytes(16) == same.random_bytes(16)
    assert [one.below(10) for _ in range(20)] == [same.below(10) for _ in range(20)]
