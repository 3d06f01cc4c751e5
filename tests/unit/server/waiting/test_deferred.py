"""What a request waits for: brought once, by somebody else or by the end of its time."""

from __future__ import annotations

import asyncio

import pytest

from odradek.adapters.clock import SystemClock
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.server.containment import Containment
from odradek.server.waiting.deferred import Deferred, Translated, Woken, of_task
from odradek.server.waiting.purgatory import Purgatory


def test_a_coroutine_waits_for_it() -> None:
    async def test() -> None:
        done, later, failing = Deferred[int](), Deferred[int](), Deferred[int]()
        done.complete(1)
        asyncio.get_running_loop().call_soon(later.complete, 2)
        asyncio.get_running_loop().call_soon(failing.fail, KafkaError(ErrorCode.NOT_COORDINATOR))
        assert [await done, await later] == [1, 2]
        with pytest.raises(KafkaError) as failed:
            await failing
        assert failed.value.code is ErrorCode.NOT_COORDINATOR

    asyncio.run(test())


def test_who_is_cancelled_is_remembered_by_nobody() -> None:
    async def test() -> None:
        purgatory = Purgatory(SystemClock(), Containment())
        woken = purgatory.park(timeout_ms=60_000)

        async def wait() -> bool:
            return await woken

        waiting = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        assert len(purgatory) == 1
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert len(purgatory) == 0
        woken.wake()
        purgatory.close()

    asyncio.run(test())


def test_what_is_brought_for_one_who_was_cancelled_is_not_missed() -> None:
    async def test() -> None:
        deferred = Deferred[int]()

        async def wait() -> int:
            return await deferred

        waiting = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        deferred.complete(1)
        assert deferred.result() == 1

    asyncio.run(test())


def test_it_is_brought_once() -> None:
    deferred, woken = Deferred[int](), Woken()
    deferred.complete(1)
    with pytest.raises(AssertionError):
        deferred.complete(2)
    for _ in range(2):
        woken.wake()
        woken.expire()
    assert woken.result() is True


def test_one_whose_kind_says_nothing_of_lateness_times_out() -> None:
    async def test() -> None:
        purgatory = Purgatory(SystemClock(), Containment())
        deferred = Deferred[int]()
        purgatory.watch(deferred, timeout_ms=1)
        with pytest.raises(KafkaError) as late:
            await deferred
        assert late.value.code is ErrorCode.REQUEST_TIMED_OUT

    asyncio.run(test())


def test_what_a_task_comes_to_is_told_once_it_has_ended() -> None:
    async def test() -> None:
        may_end = asyncio.Event()

        async def work(fails: bool) -> int:
            await may_end.wait()
            if fails:
                raise KafkaError(ErrorCode.NOT_COORDINATOR)
            return 7

        done, failed, unwanted = of_task(work(False)), of_task(work(True)), of_task(work(True))
        unwanted.abandon()
        told: list[Deferred[int]] = []
        done.on_done = told.append
        await asyncio.sleep(0)
        assert not done.is_done
        may_end.set()
        with pytest.raises(KafkaError) as why:
            await failed
        assert why.value.code is ErrorCode.NOT_COORDINATOR
        assert (told, done.result(), unwanted.is_done) == ([done], 7, True)

    asyncio.run(test())


def test_a_refusal_may_be_told_as_a_result_and_what_nobody_expected_is_not_hidden() -> None:
    def told(number: int | None, refused: KafkaError | None) -> str:
        return str(number) if refused is None else refused.code.name

    well, refused, broken = Deferred[int](), Deferred[int](), Deferred[int]()
    translated = [Translated(each, told) for each in (well, refused, broken)]
    well.complete(7)
    refused.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
    broken.fail(ZeroDivisionError())
    assert [each.result() for each in translated[:2]] == ["7", "NOT_COORDINATOR"]
    with pytest.raises(ZeroDivisionError):
        translated[2].result()
