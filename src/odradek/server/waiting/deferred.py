"""An answer that somebody else's request or a timer will bring, handed over by a plain call.

A request that waits for one costs no task and no turn of the loop, so that a thousand members of a group who wait for
the last of them are answered in one pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from odradek.ports import Part

ResultT = TypeVar("ResultT")


class Deferred(Generic[ResultT]):
    """Completed or failed once, and waited for by one; who does not wait any more sets `on_done` to None."""

    __slots__ = ("_failure", "_result", "asked", "frame", "is_done", "is_one_of_many", "on_done")

    def __init__(self) -> None:
        self._result: ResultT | None = None
        self._failure: Exception | None = None
        self.is_done = False
        """Or failed: nothing more will come."""
        self.on_done: Callable[[Deferred[ResultT]], None] | None = None
        self.is_one_of_many = False
        """Whether others of the same connection are likely to be completed in the same breath: they leave together."""
        self.asked: Any = None
        """The request, where `frame` wants to know it."""
        self.frame: Callable[[Deferred[ResultT], int], bytes | list[Part]] | None = None
        """How a fast path makes the whole answer of it, for a correlation id."""

    def complete(self, result: ResultT) -> None:
        assert not self.is_done, "a request is answered once"
        self._result = result
        self.is_done = True
        if self.on_done is not None:
            self.on_done(self)

    def fail(self, failure: Exception) -> None:
        """It will not be completed, and this is why."""
        self._failure = failure
        self.complete(None)  # type: ignore[arg-type]

    def result(self) -> ResultT:
        """What it was completed with; raises why it failed."""
        if self._failure is not None:
            raise self._failure
        return self._result  # type: ignore[return-value]

    async def wait(self) -> ResultT:
        """For those who are driven by a task."""
        if not self.is_done:
            done = asyncio.get_running_loop().create_future()

            def wake(deferred: Deferred[ResultT]) -> None:
                if not done.done():
                    done.set_result(None)

            self.on_done = wake
            await done
        return self.result()
