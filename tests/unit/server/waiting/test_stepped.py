"""A coroutine that was stepped by hand goes on where it waited."""

from __future__ import annotations

import asyncio

import pytest

from odradek.server.waiting.stepped import Stepped, resume


def test_a_coroutine_stepped_by_hand_goes_on_as_a_task() -> None:
    seen: list[str] = []

    async def handler(first: asyncio.Future[str], second: asyncio.Future[str]) -> str:
        seen.append(await first)
        try:
            await second
        except ZeroDivisionError:
            seen.append("caught")
        return "done"

    async def test() -> None:
        loop = asyncio.get_running_loop()
        first, second = loop.create_future(), loop.create_future()
        coroutine = handler(first, second)
        task = loop.create_task(resume(coroutine, coroutine.send(None)))
        await asyncio.sleep(0)
        first.set_result("first")
        await asyncio.sleep(0.01)
        second.set_exception(ZeroDivisionError())
        assert await task == "done"
        assert seen == ["first", "caught"]

    asyncio.run(test())


def test_a_coroutine_stepped_by_hand_can_be_cancelled() -> None:
    cleaned: list[bool] = []

    async def handler(future: asyncio.Future[None]) -> None:
        try:
            await future
        finally:
            cleaned.append(True)

    async def test(turns: int) -> None:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        coroutine = handler(future)
        task = loop.create_task(resume(coroutine, coroutine.send(None)))
        del coroutine
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task

    for turns in (0, 1, 2):
        asyncio.run(test(turns))
        assert len(cleaned) == turns + 1


def test_a_stepped_coroutine_goes_on_with_what_it_waits_for() -> None:
    ended: list[Stepped[str]] = []

    async def handler(first: asyncio.Future[str], second: asyncio.Future[str]) -> str:
        heard = await first
        await asyncio.sleep(0)  # Not a future: from here on a task drives it.
        return heard + await second

    async def run() -> None:
        loop = asyncio.get_running_loop()
        first: asyncio.Future[str] = loop.create_future()
        second: asyncio.Future[str] = loop.create_future()
        coroutine = handler(first, second)
        Stepped(coroutine, coroutine.send(None), ended.append)
        first.set_result("a")
        second.set_result("b")
        for _ in range(5):
            await asyncio.sleep(0)

    asyncio.run(run())
    assert [(each.result, each.failure) for each in ended] == [("ab", None)]


def test_why_a_stepped_coroutine_has_no_result() -> None:
    ended: list[Stepped[None]] = []

    async def handler(first: asyncio.Future[None]) -> None:
        await first

    async def run() -> None:
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        coroutine = handler(first)
        Stepped(coroutine, coroutine.send(None), ended.append)
        first.set_exception(OSError("gone"))
        await asyncio.sleep(0)

    asyncio.run(run())
    assert [str(each.failure) for each in ended] == ["gone"]


@pytest.mark.parametrize("answered", [False, True])
def test_a_stepped_coroutine_that_is_cancelled_ends_and_nobody_is_told(answered: bool) -> None:
    ended: list[Stepped[None]] = []
    seen: list[str] = []

    async def handler(first: asyncio.Future[None]) -> None:
        try:
            await first
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def run() -> None:
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        coroutine = handler(first)
        stepped = Stepped(coroutine, coroutine.send(None), ended.append)
        if answered:
            first.set_result(None)
        stepped.cancel()
        await asyncio.sleep(0)

    asyncio.run(run())
    assert (seen, ended) == (["cancelled"], [])
