"""Waits end by a wake or by their own deadline, with one timer for all."""

from __future__ import annotations

import asyncio

from odradek.adapters.clock import SystemClock
from odradek.server.purgatory import Purgatory


def test_a_wait_ends_when_it_is_woken_or_its_time_is_up() -> None:
    async def test() -> None:
        purgatory = Purgatory(SystemClock())
        long, short, woken = (purgatory.park(timeout_ms=wait) for wait in (60_000, 5, 60_000))
        assert len(purgatory) == 3
        purgatory.wake(woken)
        assert await woken is True
        assert await asyncio.wait_for(short, 5) is False
        assert not long.done()
        purgatory.close()
        assert await long is False

    asyncio.run(test())


def test_an_earlier_deadline_moves_the_timer() -> None:
    async def test() -> None:
        purgatory = Purgatory(SystemClock())
        waits = [purgatory.park(timeout_ms=wait) for wait in (10_000, 30, 20, 10)]
        for wait in waits[:0:-1]:
            assert await asyncio.wait_for(wait, 5) is False
        assert not waits[0].done()
        purgatory.close()

    asyncio.run(test())


def test_finished_waits_do_not_pile_up() -> None:
    async def test() -> None:
        purgatory = Purgatory(SystemClock())
        for _ in range(10_000):
            purgatory.wake(purgatory.park(timeout_ms=60_000))
        assert len(purgatory._deadlines) < 2_000
        purgatory.close()

    asyncio.run(test())
