"""The one thing a request waits for: completed by somebody else's request, or ended by its deadline, with a plain call.

A request that waits for one costs no task and no turn of the loop, so that a thousand members of a group who wait for
the last of them are answered in one pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar

from odradek.ports import Part
from odradek.protocol.errors import ErrorCode, KafkaError

ResultT = TypeVar("ResultT")
OtherT = TypeVar("OtherT")


class Deferred(Generic[ResultT]):
    """Completed or failed once, and waited for by one; who does not wait any more sets `on_done` to None."""

    __slots__ = ("_failure", "_result", "asked", "frame", "is_done", "on_done")

    def __init__(self) -> None:
        self._result: ResultT | None = None
        self._failure: Exception | None = None
        self.is_done = False
        """Or failed: nothing more will come."""
        self.on_done: Callable[[Deferred[ResultT]], None] | None = None
        self.asked: Any = None
        """The request, where `frame` wants to know it."""
        self.frame: Callable[[Deferred[ResultT], int], bytes | list[Part]] | None = None
        """How a fast path without a plan makes the whole answer of it, for a correlation id."""

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

    def expire(self) -> None:
        """Its time is up, says purgatory, which alone calls this; a kind of wait says here what lateness means."""
        self.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))

    def result(self) -> ResultT:
        """What it was completed with; raises why it failed."""
        if self._failure is not None:
            raise self._failure
        return self._result  # type: ignore[return-value]

    def abandon(self) -> None:
        """Nobody waits any more; who brings it need not know that."""
        self.on_done = None

    def __await__(self) -> Generator[Any, None, ResultT]:
        """For a coroutine, which may be cancelled meanwhile."""
        if not self.is_done:
            done = asyncio.get_running_loop().create_future()

            def wake(deferred: Deferred[ResultT]) -> None:
                if not done.done():
                    done.set_result(None)

            self.on_done = wake
            try:
                yield from done
            finally:
                if not self.is_done:
                    self.abandon()
        return self.result()


class Translated(Deferred[ResultT]):
    """What another one comes to, told in other words; nobody else waits for that one."""

    __slots__ = ("_told",)

    def __init__(self, other: Deferred[OtherT], told: Callable[[OtherT | None, KafkaError | None], ResultT]) -> None:
        """`told` makes the result of that one's, or of why it has none."""
        Deferred.__init__(self)
        self._told = told
        other.on_done = self._tell

    def _tell(self, other: Deferred[Any]) -> None:
        try:
            told = self._told(other.result(), None)
        except KafkaError as refused:
            told = self._told(None, refused)
        except Exception as failure:  # noqa: BLE001 - whoever waits for this one sorts it out
            self.fail(failure)
            return
        self.complete(told)


def of_task(coroutine: Coroutine[Any, Any, ResultT]) -> Deferred[ResultT]:
    """What a coroutine comes to, which goes on though nobody may wait for it any more."""
    deferred: Deferred[ResultT] = Deferred()

    def tell(task: asyncio.Task[ResultT]) -> None:
        if task.cancelled():
            return
        failure = task.exception()
        if failure is None:
            deferred.complete(task.result())
        elif isinstance(failure, Exception):
            deferred.fail(failure)

    asyncio.get_running_loop().create_task(coroutine).add_done_callback(tell)
    return deferred


class Wakeable(Protocol):
    """Somebody who looks again when there is news, or when the time is up."""

    is_done: bool

    def wake(self) -> None: ...


class Woken(Deferred[bool]):
    """Whether there was news before the time was up."""

    __slots__ = ()

    def wake(self) -> None:
        if not self.is_done:
            self.complete(True)

    def expire(self) -> None:
        if not self.is_done:
            self.complete(False)

    def abandon(self) -> None:
        """Nor has anybody to remember it until its time is up."""
        self.on_done = None
        self.is_done = True
