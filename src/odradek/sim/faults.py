"""What goes wrong in a run, when, and how badly."""

from __future__ import annotations

import asyncio
import posixpath
import random
from collections.abc import Awaitable, Callable

from odradek.sim.cluster import Cluster
from odradek.sim.disk import Keep
from odradek.sim.history import DiskFilled

LONGEST_PAUSE_S = 2.5
STRIKE_PATIENCE_S = 4.0
SEGMENT_FILES = (".log", ".index", ".timeindex", ".snapshot")


class Faults:
    """A number of faults, one after the other, drawn from the seed."""

    def __init__(self, cluster: Cluster, count: int, *, power: bool) -> None:
        self._cluster = cluster
        self._machine = cluster.machine
        self._count = count
        self._power = power
        self._draw = cluster.draw("faults")
        self._kinds: tuple[tuple[int, Callable[[], Awaitable[None]]], ...] = (
            (3, self._kill),
            (5, self._strike_anywhere),
            (4, self._strike_roll),
            (2, self._restart),
            (3, self._cut_connections),
            (1, self._stall),
            (1, self._set_clock),
            (2, self._fill_disk),
        )

    async def run(self) -> None:
        weights = [weight for weight, _ in self._kinds]
        for _ in range(self._count):
            await asyncio.sleep(self._draw.random() * LONGEST_PAUSE_S)
            ((_, fault),) = self._draw.choices(self._kinds, weights)
            await fault()

    async def _kill(self) -> None:
        await self._machine.crash(self._keep())
        await self._start_again()

    async def _strike_anywhere(self) -> None:
        """Let the node die in some change of its disk that is yet to come."""
        changes = self._draw.randrange(1, 60)
        left = [changes]

        def strike(path: str, length: int) -> int | None:
            left[0] -= 1
            if left[0]:
                return None
            self._cluster.trace.mark("crash inside a write" if length else "crash before a change of names")
            return self._draw.randrange(length + 1)

        await self._strike(strike)

    async def _strike_roll(self) -> None:
        """Let the node die while it makes the files of a new segment."""
        skipped = [self._draw.randrange(3)]

        def strike(path: str, length: int) -> int | None:
            name = posixpath.basename(path)
            rolls = (
                not length and name.endswith(SEGMENT_FILES) and name.rstrip("abcdefghijklmnopqrstuvwxyz.") != "0" * 20
            )
            if not rolls:
                return None
            skipped[0] -= 1
            if skipped[0] >= 0:
                return None
            self._cluster.trace.mark("crash during roll")
            return 0

        await self._strike(strike)

    async def _strike(self, strike: Callable[[str, int], int | None]) -> None:
        machine = self._machine
        struck = asyncio.Event()

        def on_change(path: str, length: int) -> int | None:
            after = strike(path, length)
            if after is not None:
                machine.device.on_change = None
                struck.set()
            return after

        machine.device.on_change = on_change
        try:
            async with asyncio.timeout(STRIKE_PATIENCE_S):
                await struck.wait()
        except TimeoutError:
            machine.device.on_change = None
            return
        await machine.crash(self._keep())
        await self._start_again()

    async def _restart(self) -> None:
        await self._machine.stop()
        await self._start_again()

    async def _cut_connections(self) -> None:
        for wire in self._cluster.internet.open_wires():
            if self._draw.random() < 0.4:
                wire.reset()
                self._cluster.trace.mark("connection cut")

    async def _stall(self) -> None:
        self._cluster.internet.stall(self._draw.randrange(100_000, 3_000_000))
        self._cluster.trace.mark("network stalled")

    async def _set_clock(self) -> None:
        self._machine.clock.wall_offset_ms += self._draw.randrange(-1500, 1500)
        self._cluster.trace.mark("clock set")

    async def _fill_disk(self) -> None:
        """Let the disk take a few more bytes and then none, for a while."""
        machine = self._machine
        unlimited = machine.device.capacity
        machine.device.capacity = machine.device.used + self._draw.randrange(10_000)
        machine.may_give_up = (OSError,)
        machine.history.add(DiskFilled())
        machine.trace.note("disk", "is almost full")
        await asyncio.sleep(self._draw.random() * LONGEST_PAUSE_S)
        machine.device.capacity = unlimited
        machine.trace.note("disk", "has room again")
        machine.may_give_up = ()
        if machine.gave_up:
            await machine.crash("process")
            await self._start_again()

    async def _start_again(self) -> None:
        """The next start may be struck as well."""
        while True:
            await asyncio.sleep(self._draw.random())
            if self._draw.random() < 0.8:
                await self._machine.start()
                return
            if await self._start_and_crash(self._draw):
                return

    async def _start_and_crash(self, draw: random.Random) -> bool:
        """Start, and be struck in the middle of it unless the start changes too little for that; whether it is up."""
        machine = self._machine
        left = [draw.randrange(1, 25)]
        struck = asyncio.Event()

        def on_change(path: str, length: int) -> int | None:
            left[0] -= 1
            if left[0]:
                return None
            machine.device.on_change = None
            machine.trace.mark("crash during recovery")
            struck.set()
            return draw.randrange(length + 1)

        machine.device.on_change = on_change
        starting = asyncio.create_task(machine.start())
        waiting = asyncio.create_task(struck.wait())
        await asyncio.wait([starting, waiting], return_when=asyncio.FIRST_COMPLETED)
        machine.device.on_change = None
        waiting.cancel()
        if not struck.is_set():
            await starting
            return True
        starting.cancel()
        await asyncio.gather(starting, waiting, return_exceptions=True)
        await machine.crash(self._keep())
        return False

    def _keep(self) -> Keep:
        return "power" if self._power and self._draw.random() < 0.5 else "process"
