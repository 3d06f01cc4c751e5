"""The made-up loop: asyncio runs on it, time is drawn out of nothing, and a dead node never runs again."""

from __future__ import annotations

import asyncio

import pytest

from odradek.sim.loop import Crashed, Deadlock, Life, SimulatedLoop


def test_a_long_sleep_costs_no_time() -> None:
    loop = SimulatedLoop()

    async def sleep() -> float:
        await asyncio.sleep(86_400)
        return loop.time()

    assert loop.run_until_complete(sleep()) == 86_400


def test_timers_run_by_time_and_then_in_the_order_they_were_set() -> None:
    loop = SimulatedLoop()
    seen: list[str] = []
    loop.call_later(2, seen.append, "second of two seconds")
    loop.call_later(1, seen.append, "one second")
    loop.call_at(2, seen.append, "set later for two seconds")
    loop.call_soon(seen.append, "at once")
    cancelled = loop.call_later(1.5, seen.append, "never")
    cancelled.cancel()
    loop.run_forever()
    assert seen == ["at once", "one second", "second of two seconds", "set later for two seconds"]


def test_tasks_events_timeouts_and_cancellation_work_as_ever() -> None:
    loop = SimulatedLoop()

    async def run() -> list[str]:
        seen = []
        event = asyncio.Event()

        async def waiter() -> str:
            await event.wait()
            return "woken"

        task = asyncio.create_task(waiter())
        asyncio.get_running_loop().call_later(3, event.set)
        seen.append(await task)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(100)
        seen.append(f"at {loop.time()}")
        stuck = asyncio.create_task(asyncio.sleep(100))
        await asyncio.sleep(1)
        stuck.cancel()
        seen += [type(result).__name__ for result in await asyncio.gather(stuck, return_exceptions=True)]
        return seen

    assert loop.run_until_complete(run()) == ["woken", "at 8.0", "CancelledError"]


def test_a_deadlock_and_a_spin_are_told_apart() -> None:
    async def wait_for_ever() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match="nothing is ready"):
        SimulatedLoop().run_until_complete(wait_for_ever())

    busy = SimulatedLoop(max_steps=1000)

    def spin() -> None:
        busy.call_soon(spin)

    spin()
    with pytest.raises(Deadlock, match="something spins"):
        busy.run_forever()


def test_what_nobody_caught_is_kept() -> None:
    loop = SimulatedLoop()
    loop.call_soon(lambda: [][0])
    loop.run_forever()
    assert len(loop.failures) == 1
    assert "<lambda>" in loop.failures[0]
    assert loop.failures[0].endswith("IndexError('list index out of range')")


def test_nothing_of_an_ended_life_runs_again() -> None:
    loop = SimulatedLoop()
    life = Life("node")
    seen: list[str] = []

    async def node() -> None:
        asyncio.create_task(part("child"))  # noqa: RUF006
        await part("main")

    async def part(name: str) -> None:
        try:
            while True:
                seen.append(f"{name} {loop.time():.0f}")
                await asyncio.sleep(1)
        finally:
            life.check()
            seen.append("a dead node did something")

    async def run() -> None:
        loop.create_task(node(), context=life.context)
        loop.call_later(1.2, seen.append, "callback of the dead", context=life.context)
        loop.call_later(0.2, seen.append, "callback of the living", context=life.context)
        await asyncio.sleep(1.1)
        life.end()
        await asyncio.sleep(10)

    loop.run_until_complete(run())
    assert seen == ["main 0", "child 0", "callback of the living", "main 1", "child 1"]
    assert loop.failures == []
    assert not life.tasks
    with pytest.raises(Crashed):
        life.check()


def test_what_a_dying_life_puts_off_never_happens() -> None:
    """Its coroutines are closed when it ends, by whoever ended it, and what that calls for is not his."""
    loop = SimulatedLoop()
    life = Life("a node")
    ran: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ran.append("unwound")
            asyncio.get_running_loop().call_soon(ran.append, "went on")

    async def kill() -> None:
        loop.create_task(work(), context=life.context)
        await asyncio.sleep(1)
        life.end()
        await asyncio.sleep(1)

    loop.run_until_complete(kill())
    assert ran == ["unwound"]


def test_finished_tasks_are_forgotten_by_their_life() -> None:
    loop = SimulatedLoop()
    life = Life("node")

    async def run() -> None:
        for _ in range(1_000):
            await loop.create_task(asyncio.sleep(1), context=life.context)

    loop.run_until_complete(run())
    assert len(life.tasks) < 100


def test_a_failure_nobody_looked_at_is_told_when_the_life_ends_at_the_latest() -> None:
    loop = SimulatedLoop()
    life = Life("node")

    async def fail() -> None:
        raise OSError("nobody looks")

    async def run() -> None:
        loop.create_task(fail(), context=life.context)
        await asyncio.sleep(1)

    loop.run_until_complete(run())
    life.end()
    assert "nobody looks" in "".join(loop.failures)


def test_a_held_life_does_later_and_in_order_what_came_up_meanwhile() -> None:
    loop = SimulatedLoop()
    life = Life("node")
    seen: list[str] = []

    async def ticks() -> None:
        while True:
            seen.append(f"tick {loop.time():.0f}")
            await asyncio.sleep(1)

    async def run() -> None:
        loop.create_task(ticks(), context=life.context)
        await asyncio.sleep(1.5)
        life.held = []
        for at_s in (2.5, 2.2, 3.5):
            loop.call_at(at_s, seen.append, f"timer of {at_s}", context=life.context)
        loop.call_soon(seen.append, "at once", context=life.context)
        cancelled = loop.call_at(3, seen.append, "cancelled while held", context=life.context)
        await asyncio.sleep(2.5)
        assert seen == ["tick 0", "tick 1"]
        cancelled.cancel()
        loop.go_on(life)
        await asyncio.sleep(0.7)

    loop.run_until_complete(run())
    assert seen[2:] == ["at once", "timer of 2.2", "timer of 2.5", "timer of 3.5", "tick 4"]


def test_a_life_may_end_while_it_is_held() -> None:
    loop = SimulatedLoop()
    life = Life("node")
    seen: list[str] = []

    async def run() -> None:
        life.held = []
        loop.call_soon(seen.append, "never", context=life.context)
        await asyncio.sleep(1)
        life.end()
        loop.go_on(life)
        await asyncio.sleep(1)

    loop.run_until_complete(run())
    assert seen == []
