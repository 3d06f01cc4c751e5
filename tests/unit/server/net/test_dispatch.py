"""Endpoints are compiled once, errors find their place, and a stepped coroutine goes on where it waited."""

from __future__ import annotations

import asyncio

import pytest

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_cluster import DescribeClusterResponse
from odradek.protocol.messages.fetch import FetchResponse
from odradek.server.net.dispatch import Endpoints, UnservedRequest
from odradek.server.net.routes import Role
from odradek.server.waiting.stepped import Stepped, resume


def test_an_endpoint_is_compiled_once() -> None:
    endpoints = Endpoints(Role.BROKER, "PLAINTEXT")
    assert endpoints.get(ApiKey.FETCH << 16 | 12) is None
    endpoint = endpoints.compile(ApiKey.FETCH, 12)
    assert endpoints.get(ApiKey.FETCH << 16 | 12) is endpoint
    assert endpoints.get(ApiKey.FETCH << 16 | 11) is None
    assert endpoint.listener_name == "PLAINTEXT"


@pytest.mark.parametrize(
    ("role", "key", "version", "word"),
    [
        (Role.BROKER, 9999, 0, "API key 9999"),
        (Role.BROKER, -1, 0, "API key -1"),
        (Role.CONTROLLER, ApiKey.PRODUCE, 9, "API key 0"),
        (Role.BROKER, ApiKey.PRODUCE, 2, "version 2 of PRODUCE"),
        (Role.BROKER, ApiKey.PRODUCE, 14, "versions 3 to 13"),
        (Role.BROKER, ApiKey.PRODUCE, -1, "version -1"),
    ],
)
def test_what_is_not_served_is_said_so(role: Role, key: int, version: int, word: str) -> None:
    with pytest.raises(UnservedRequest, match=word):
        Endpoints(role, "PLAINTEXT").compile(key, version)


def test_errors_are_put_where_an_api_has_a_place_for_them() -> None:
    endpoints = Endpoints(Role.BROKER, "PLAINTEXT")
    fetch = endpoints.compile(ApiKey.FETCH, 12).error_answer
    assert fetch is not None
    assert fetch(ErrorCode.INVALID_REQUEST, "why") == FetchResponse(error_code=42)
    cluster = endpoints.compile(ApiKey.DESCRIBE_CLUSTER, 0).error_answer
    assert cluster is not None
    answer = cluster(ErrorCode.INVALID_REQUEST, "why")
    assert isinstance(answer, DescribeClusterResponse)
    assert (answer.error_code, answer.error_message) == (42, "why")
    assert endpoints.compile(ApiKey.PRODUCE, 9).error_answer is None


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


def test_a_suspended_coroutine_goes_on_with_what_it_waits_for() -> None:
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


def test_why_a_suspended_coroutine_has_no_result() -> None:
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
def test_a_suspended_coroutine_that_is_cancelled_ends_and_nobody_is_told(answered: bool) -> None:
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
        suspended = Stepped(coroutine, coroutine.send(None), ended.append)
        if answered:
            first.set_result(None)
        suspended.cancel()
        await asyncio.sleep(0)

    asyncio.run(run())
    assert (seen, ended) == (["cancelled"], [])
