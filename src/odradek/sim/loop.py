"""An event loop whose time is made up.

asyncio's tasks, futures and timers run on it unchanged: what is ready runs in order, and when nothing is, time jumps to
the next timer. Code that belongs to a node runs in that node's `Life`; once a life has ended, nothing of it runs again,
which is how a crash looks from inside: no exception, no `finally`, just no next step. A life that is held (SIGSTOP)
takes no step either, and when it goes on it does all that came up meanwhile, in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from heapq import heappop, heappush
from typing import Any, TypeAlias, TypeVar, TypeVarTuple

ResultT = TypeVar("ResultT")
ArgumentTs = TypeVarTuple("ArgumentTs")

_life: contextvars.ContextVar[Life] = contextvars.ContextVar("odradek-simulated-life")


def whose_turn() -> Life | None:
    """The life whose code runs now; None while it is the simulator's own."""
    return _life.get(None)


class Crashed(BaseException):
    """Unwinds the code of a node that crashed in the middle of a call; nothing catches it but the simulator."""


class Deadlock(Exception):
    """Nothing is ready and no timer is set, yet somebody still waits."""


class Life:
    """One run of one node, from its start to its stop or crash; all it schedules carries it along."""

    def __init__(self, name: str, machine: str = "") -> None:
        self.name = name
        self.machine = machine or name
        self.alive = True
        self.context = contextvars.copy_context()
        self.context.run(_life.set, self)
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.held: list[asyncio.Handle | Posted] | None = None
        """What would have run while the life is held; None when it is not."""
        self._failed: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._sweep_at = 64

    def note_task(self, task: asyncio.Task[Any]) -> None:
        """Keep a task until it is done; those that are go a few at a time, for a callback each would be a step each."""
        self.tasks[task] = None
        if len(self.tasks) > self._sweep_at:
            self._sweep()
            self._sweep_at = 64 + 2 * len(self.tasks)

    def _sweep(self) -> None:
        """Let go of tasks that are done: one that failed, and at whose failure nobody looks any more, then says so."""
        done = [task for task in self.tasks if task.done()]
        for task in done:
            del self.tasks[task]
            if not task.cancelled() and task._exception is not None:
                self._failed.add(task)

    def check(self) -> None:
        """Called by every port: a dead node reaches nothing."""
        if not self.alive:
            raise Crashed(self.name)

    def end(self) -> None:
        """Nothing of this life runs again.

        Coroutines are closed here, in the order of their creation, because the garbage collector would do it at a time
        that no seed decides. What their `finally` blocks try reaches nothing.
        """
        self.alive = False
        self.held = None
        self._sweep()
        for task in list(self.tasks):
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coroutine = task.get_coro()
                assert isinstance(coroutine, Coroutine | Generator)
                self.unwind(coroutine.close)
        self.tasks.clear()
        for task in list(self._failed):
            task.exception()  # Nobody is left who could have looked at it.

    def unwind(self, close: Callable[[], None]) -> None:
        """Close a coroutine of a life that has ended; what it would have the loop do yet is of that life, too.

        It may try to wait once more, or be the one whose call crashed and which is being unwound already.
        """
        with contextlib.suppress(Crashed, RuntimeError, ValueError):
            self.context.copy().run(close)


Posted: TypeAlias = tuple[Callable[..., object], tuple[Any, ...], "Life"]
"""A callback, its arguments, and the life in which it runs: what nobody will cancel needs no more."""


class _Handle(asyncio.Handle):
    """A callback and its context; as asyncio's, without what only a loop in debug mode needs."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context | None
    ) -> None:
        self._callback = callback
        self._args = args
        self._context = contextvars.copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True


class _Timer(asyncio.TimerHandle):
    """A handle with a time, in microseconds."""

    __slots__ = ()

    def __init__(
        self,
        when_us: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        self._when = when_us
        self._callback = callback
        self._args = args
        self._context = contextvars.copy_context() if context is None else context
        self._cancelled = False

    def when(self) -> float:
        return self._when / 1_000_000

    def cancel(self) -> None:
        self._cancelled = True  # The heap drops it when its time comes.


class SimulatedLoop(asyncio.AbstractEventLoop):
    """Ready callbacks in order, timers by time and then by the order they were set."""

    def __init__(self, *, max_steps: int = 1_500_000) -> None:
        self.steps = 0
        self.failures: list[str] = []
        self._max_steps = max_steps
        self.now_us = 0
        self._ready: deque[asyncio.Handle | Posted] = deque()
        self._timers: list[tuple[int, int, _Timer | Posted]] = []
        self._sequence = 0
        self._stopping = False
        self._running = False
        self._closed = False

    # What the simulator asks for.

    def run_until_complete(self, future: Any) -> Any:
        """Run until this one is done; time passes only when nothing else is left to do."""
        task: asyncio.Future[Any] = asyncio.ensure_future(future, loop=self)
        task.add_done_callback(self._stop_soon)
        self.run_forever()
        if not task.done():
            raise Deadlock("nothing is ready, no timer is set, and the run is not over")
        return task.result()

    def run_forever(self) -> None:
        assert not self._running
        self._running = True
        self._stopping = False
        asyncio._set_running_loop(self)
        try:
            self._run()
        finally:
            self._running = False
            asyncio._set_running_loop(None)

    def go_on(self, life: Life) -> None:
        """A held life runs again, and first does what came up meanwhile."""
        held, life.held = life.held, None
        self._ready.extend(held or ())

    def _run(self) -> None:
        ready, timers = self._ready, self._timers
        next_ready, make_ready = ready.popleft, ready.append
        steps, last_step = self.steps, self._max_steps
        step: Any
        try:
            while not self._stopping:
                if ready:
                    step = next_ready()
                elif timers:
                    when, _, step = heappop(timers)
                    if when > self.now_us:
                        if type(step) is not tuple and step._cancelled:
                            continue  # Time does not go on for what nobody wants any more.
                        self.now_us = when
                    while timers and timers[0][0] <= self.now_us:
                        make_ready(heappop(timers)[2])
                else:
                    return
                steps += 1
                if steps > last_step:
                    raise Deadlock(f"still busy after {last_step} steps at {self.now_us} µs: something spins")
                if type(step) is tuple:
                    callback, args, life = step
                    context = life.context
                else:
                    if step._cancelled:
                        continue
                    callback, args, context = step._callback, step._args, step._context
                    life = context.get(_life)
                if life is None:
                    pass
                elif not life.alive:
                    continue
                elif life.held is not None:
                    life.held.append(step)
                    continue
                try:
                    context.run(callback, *args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as exception:  # noqa: BLE001 - as asyncio does it: nobody else is left to catch it
                    message = f"Exception in callback {callback!r}"
                    self.call_exception_handler({"message": message, "exception": exception})
        finally:
            self.steps = steps

    def post(self, when_us: int, life: Life, callback: Callable[..., object], *args: object) -> None:
        """Call back in that life at that time, as nothing but the life's end can prevent."""
        self._sequence = sequence = self._sequence + 1
        heappush(self._timers, (when_us, sequence, (callback, args, life)))

    def _stop_soon(self, _: asyncio.Future[Any]) -> None:
        self._stopping = True

    # What asyncio asks for.

    def time(self) -> float:
        return self.now_us / 1_000_000

    def call_soon(
        self, callback: Callable[[*ArgumentTs], object], *args: *ArgumentTs, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*ArgumentTs], object],
        *args: *ArgumentTs,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        delay_us = round(delay * 1_000_000) if delay > 0 else 0
        return self.call_at_us(self.now_us + delay_us, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*ArgumentTs], object],
        *args: *ArgumentTs,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at_us(round(when * 1_000_000), callback, *args, context=context)

    def call_at_us(
        self,
        when_us: int,
        callback: Callable[[*ArgumentTs], object],
        *args: *ArgumentTs,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Whole microseconds: sums of floats would order timers by rounding."""
        handle = _Timer(when_us, callback, args, context)
        self._sequence = sequence = self._sequence + 1
        heappush(self._timers, (when_us, sequence, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Generator[Any, None, ResultT] | Coroutine[Any, Any, ResultT], **options: Any
    ) -> asyncio.Task[ResultT]:
        task = asyncio.Task(coro, loop=self, **options)
        context = options.get("context")
        life = _life.get(None) if context is None else context.get(_life)
        if life is not None:
            life.note_task(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Whatever nobody caught fails the run, except what a crash leaves behind."""
        exception = context.get("exception")
        if not isinstance(exception, Crashed | GeneratorExit):
            self.failures.append(f"{context.get('message')}: {exception!r}")

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self._ready.clear()
        self._timers.clear()

    get_debug = staticmethod(bool)  # False, and at no cost: every future asks.
