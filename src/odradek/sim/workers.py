"""Made-up worker threads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, Generic, TypeVar

from odradek.ports import Disk
from odradek.sim.loop import Crashed, Life, SimulatedLoop

ResultT = TypeVar("ResultT")

SLOWEST_US = 20_000
"""A slow fsync; most take a tenth of it."""


class SimulatedWorkers:
    """A job runs whole, some time after it was handed over, and its result arrives some time after that.

    Other code may run before the job and again between the job and its result, which is all that real threads can do to
    code that shares nothing with them. As a real thread's, a job runs also when nobody waits for it any more.
    """

    def __init__(self, life: Life, draw: random.Random) -> None:
        self._life = life
        self._draw = draw

    async def run(self, job: Callable[[], ResultT]) -> ResultT:
        self._life.check()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        result: asyncio.Future[ResultT] = loop.create_future()
        self._later(loop, self._work, loop, job, result)
        return await result

    def apart(self, disk: Disk, job: Callable[[Disk], Generator[ResultT, None, None]]) -> SimulatedSteps[ResultT]:
        """A step is a job like any other here."""
        return SimulatedSteps(self, job(disk))

    def _work(self, loop: SimulatedLoop, job: Callable[[], ResultT], result: asyncio.Future[ResultT]) -> None:
        try:
            done = job()
        except Exception as failure:  # noqa: BLE001 - whoever waits for the job gets it
            self._later(loop, _settle, result.set_exception, result, failure)
        else:
            self._later(loop, _settle, result.set_result, result, done)

    def _later(self, loop: SimulatedLoop, step: Callable[..., None], *arguments: Any) -> None:
        draw = self._draw.random
        delay = 1 + int(draw() * (SLOWEST_US if draw() < 0.1 else SLOWEST_US // 10))
        loop.post(loop.now_us + delay, self._life, step, *arguments)


class SimulatedSteps(Generic[ResultT]):
    """Work of which each step runs whole, at a time of its own."""

    def __init__(self, workers: SimulatedWorkers, steps: Generator[ResultT, None, None]) -> None:
        self._workers = workers
        self._steps = steps

    def __del__(self) -> None:
        """Of a node that has crashed nobody closes anything; nor can anybody, and that is no news."""
        with suppress(Crashed):
            self._steps.close()

    async def next(self) -> ResultT | None:
        return await self._workers.run(lambda: next(self._steps, None))

    async def close(self) -> None:
        await self._workers.run(self._steps.close)


def _settle(settle: Callable[[Any], None], result: asyncio.Future[Any], outcome: Any) -> None:
    if not result.done():
        settle(outcome)
