"""Made-up worker threads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

from odradek.sim.loop import Life

ResultT = TypeVar("ResultT")

SLOWEST_US = 20_000
"""A slow fsync; most take a tenth of it."""


class SimulatedWorkers:
    """A job runs whole, some time after it was handed over, and its result arrives some time after that.

    Other code may run before the job and again between the job and its result, which is all that real threads can do to
    code that shares nothing with them.
    """

    def __init__(self, life: Life, draw: random.Random) -> None:
        self._life = life
        self._draw = draw

    async def run(self, job: Callable[[], ResultT]) -> ResultT:
        self._life.check()
        await self._pass_time()
        try:
            result = job()
        except Exception:
            await self._pass_time()
            raise
        await self._pass_time()
        return result

    async def _pass_time(self) -> None:
        bound = SLOWEST_US if self._draw.random() < 0.1 else SLOWEST_US // 10
        await asyncio.sleep(self._draw.randrange(1, bound) / 1_000_000)
