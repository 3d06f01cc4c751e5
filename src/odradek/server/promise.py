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


class Promise(Generic[ResultT]):
    """Kept or broken once, and waited for by one; who does not wait any more sets `on_kept` to None."""

    __slots__ = ("_failure", "_result", "asked", "frame", "is_kept", "is_one_of_many", "on_kept")

    def __init__(self) -> None:
        self._result: ResultT | None = None
        self._failure: Exception | None = None
        self.is_kept = False
        """Or broken: nothing more will come."""
        self.on_kept: Callable[[Promise[ResultT]], None] | None = None
        self.is_one_of_many = False
        """Whether others of the same connection are likely to be kept in the same breath: they leave together."""
        self.asked: Any = None
        """The request, where `frame` wants to know it."""
        self.frame: Callable[[Promise[ResultT], int], bytes | list[Part]] | None = None
        """How a quick handler makes the whole answer of it, for a correlation id."""

    def keep(self, result: ResultT) -> None:
        assert not self.is_kept, "a request is answered once"
        self._result = result
        self.is_kept = True
        if self.on_kept is not None:
            self.on_kept(self)

    def break_off(self, failure: Exception) -> None:
        """It will not be kept, and this is why."""
        self._failure = failure
        self.keep(None)  # type: ignore[arg-type]

    def result(self) -> ResultT:
        """What it was kept with; raises why it was broken."""
        if self._failure is not None:
            raise self._failure
        return self._result  # type: ignore[return-value]

    async def wait(self) -> ResultT:
        """For those who are driven by a task."""
        if not self.is_kept:
            kept = asyncio.get_running_loop().create_future()

            def wake(promise: Promise[ResultT]) -> None:
                if not kept.done():
                    kept.set_result(None)

            self.on_kept = wake
            await kept
        return self.result()
