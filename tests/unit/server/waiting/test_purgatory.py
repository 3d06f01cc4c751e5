"""Waits end by a wake or by their own deadline, with one timer for all."""

from __future__ import annotations

import asyncio

from odradek.adapters.clock import SystemClock
from odradek.server.containment import Containment
from odradek.server.waiting.deferred import Deferred, Woken
from odradek.server.waiting.purgatory import Purgatory


def test_a_wait_ends_when_it_is_woken_or_its_time_is_up() -> None:
    async def test() -> None:
        purgatory = Purgatory(SystemClock(), Containment())
        long, short, woken = (purgatory.park(timeout_ms=wait) for wait in (60_000, 5, 60_000))
        assert len(purgatory) == 3
        woken.wake()
        assert await woken is True
        assert await asyncio.wait_for(short, 5) is False
        assert not long.is_done
        purgatory.close()
        assert await long is False

    asyncio.run(test())


def test_an_earlier_deadline_moves_the_timer() -> None:
    async def test() -> None:
        purgatory = Purgatory(SystemClock(), Containment())
        waits = [purgatory.park(timeout_ms=wait) for wait in (10_000, 30, 20, 10)]
        for wait in waits[:0:-1]:
            assert await asyncio.wait_for(wait, 5) is False
        assert not waits[0].is_done
        purgatory.close()

    asyncio.run(test())


def test_waits_of_one_timeout_end_in_their_order_and_others_in_theirs() -> None:
    async def test() -> None:
        purgatory = Purgatory(SystemClock(), Containment())
        ended: list[int] = []
        for number, wait in enumerate((40, 20, 40, 20, 60_000)):
            purgatory.park(timeout_ms=wait).on_done = lambda _, number=number: ended.append(number)  # type: ignore[misc]
        last = purgatory.park(timeout_ms=40)
        assert await asyncio.wait_for(last, 5) is False
        assert ended == [1, 3, 0, 2]
        assert len(purgatory) == 1
        purgatory.close()

    asyncio.run(test())


def test_who_is_let_go_may_wait_again_at_once() -> None:
    async def test() -> None:
        purgatory = Purgatory(SystemClock(), Containment())
        second: list[Woken] = []

        class Again(Deferred[None]):
            def expire(self) -> None:
                second.extend((purgatory.park(timeout_ms=5), purgatory.park(timeout_ms=0)))
                self.complete(None)

        purgatory.watch(Again(), timeout_ms=5)
        behind = purgatory.park(timeout_ms=5)
        assert await asyncio.wait_for(behind, 5) is False
        for waiting in second:
            assert await asyncio.wait_for(waiting, 5) is False
        assert len(purgatory) == 0

    asyncio.run(test())


def test_finished_waits_do_not_pile_up() -> None:
    async def test() -> None:
        purgatory = Purgatory(SystemClock(), Containment())
        for _ in range(10):
            purgatory.park(timeout_ms=60_000).wake()
        assert _kept(purgatory) == 1

    asyncio.run(test())


def test_finished_waits_do_not_pile_up_behind_one_that_goes_on() -> None:
    async def test() -> None:
        purgatory = Purgatory(SystemClock(), Containment())
        alive = purgatory.park(timeout_ms=60_000)
        for _ in range(10_000):
            purgatory.park(timeout_ms=60_000).wake()
        assert _kept(purgatory) < 2_000
        assert len(purgatory) == 1
        purgatory.close()
        assert await alive is False

    asyncio.run(test())


def test_finished_waits_do_not_pile_up_where_each_would_have_taken_another_time() -> None:
    async def test() -> None:
        purgatory = Purgatory(SystemClock(), Containment())
        alive = [purgatory.park(timeout_ms=60_000), purgatory.park(timeout_ms=70_000)]
        for number in range(10_000):
            purgatory.park(timeout_ms=100_000 + number).wake()
        assert _kept(purgatory) < 2_000
        assert len(purgatory._due) == len(purgatory._lines) < 2_000
        assert len(purgatory) == 2
        assert await asyncio.wait_for(purgatory.park(timeout_ms=5), 5) is False
        purgatory.close()
        assert [await wait for wait in alive] == [False, False]

    asyncio.run(test())


def test_a_line_ends_with_the_last_who_waited_there() -> None:
    async def test() -> None:
        purgatory = Purgatory(SystemClock(), Containment())
        for wait in range(1, 100):
            purgatory.park(timeout_ms=wait).wake()
        assert await asyncio.wait_for(purgatory.park(timeout_ms=100), 5) is False
        assert not purgatory._lines
        assert not purgatory._due

    asyncio.run(test())


def _kept(purgatory: Purgatory) -> int:
    return sum(map(len, purgatory._lines.values()))
