"""Coroutines that are stepped by hand: most of what a node does on request never waits, and then needs no task."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

ReturnT = TypeVar("ReturnT")


class Stepped(Generic[ReturnT]):
    """A coroutine that was stepped once by hand and now waits; `on_done` is told when it has ended.

    What a task does, without a turn of the loop to begin with and one more to end with, which for most requests that
    wait is as much as their work. It has no task of its own, so what it calls may not use `asyncio.timeout`, unless it
    waits for something other than a future first: then a task takes it over.
    """

    __slots__ = ("_awaited", "_coroutine", "_is_cancelled", "_on_done", "failure", "result")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, ReturnT],
        awaited: object,
        on_done: Callable[[Stepped[ReturnT]], None],
    ) -> None:
        self.result: ReturnT | None = None
        self.failure: BaseException | None = None
        """Why there is no result."""
        self._coroutine = coroutine
        self._on_done = on_done
        self._is_cancelled = False
        self._awaited: asyncio.Future[Any]
        self._wait_for(awaited)

    def cancel(self) -> None:
        """Let what it waits for, or else its next step, raise CancelledError; nobody is told of its end then."""
        if not self._awaited.cancel():
            self._is_cancelled = True

    def close(self) -> None:
        """Give it up where it stands, at once."""
        self._coroutine.close()

    def _wait_for(self, awaited: object) -> None:
        if type(awaited) is asyncio.Future:
            awaited._asyncio_future_blocking = False  # It is waited for in earnest: asyncio's word for that.
            self._awaited = awaited
            awaited.add_done_callback(self._go_on)
        else:
            self._awaited = asyncio.get_running_loop().create_task(resume(self._coroutine, awaited))
            self._awaited.add_done_callback(self._end_with)

    def _go_on(self, _: asyncio.Future[Any]) -> None:
        try:
            if self._is_cancelled:
                awaited = self._coroutine.throw(asyncio.CancelledError())
            else:
                awaited = self._coroutine.send(None)
        except StopIteration as done:
            self.result = done.value
            self._on_done(self)
        except asyncio.CancelledError:
            return
        except Exception as failure:  # noqa: BLE001 - for `on_done` to judge
            self.failure = failure
            self._on_done(self)
        else:
            self._wait_for(awaited)

    def _end_with(self, task: asyncio.Task[ReturnT]) -> None:
        if not task.cancelled():
            self.failure = task.exception()
            if self.failure is None:
                self.result = task.result()
            self._on_done(self)


async def resume(coroutine: Coroutine[Any, Any, ReturnT], awaited: object) -> ReturnT:
    """Go on with a coroutine that was stepped by hand and then waited for `awaited`.

    A task takes nothing but a true coroutine since Python 3.12, so the generator that hands everything through stands
    behind one.
    """
    return await _handed_through(coroutine, awaited)


@types.coroutine
def _handed_through(coroutine: Coroutine[Any, Any, ReturnT], awaited: object) -> Generator[object, Any, ReturnT]:
    while True:
        try:
            sent = yield awaited
        except BaseException as thrown:  # noqa: BLE001 - handed on to the coroutine, which alone may judge it
            failure: BaseException | None = thrown
        else:
            failure = None
        try:
            awaited = coroutine.send(sent) if failure is None else coroutine.throw(failure)
        except StopIteration as done:
            result: ReturnT = done.value
            return result
