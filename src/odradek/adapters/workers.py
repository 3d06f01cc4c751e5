"""Threads for work that blocks, and processes for work that is busy.

Threads share the interpreter with the loop, which waits for them some milliseconds whenever they compute. So what
computes for long has a process, of low priority, that is started when it is first needed and ended when nothing has
needed it for a while.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Generator
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, Generic, TypeVar

from odradek.adapters import worker_process
from odradek.adapters.worker_process import Answer, Begin, Close, Step, receive, send
from odradek.ports import Disk, WorkerLost

ResultT = TypeVar("ResultT")

MAX_THREADS = 4
"""Enough to keep several fsyncs under way; more would only compete for the interpreter with the loop's thread."""

IDLE_S = 30.0
"""How long processes are kept that have nothing to do."""


class RealWorkers:
    """A few threads, started when the first job comes, and a process for each work that goes on apart."""

    def __init__(self) -> None:
        self._executor: Executor | None = None
        self._idle: list[WorkerProcess] = []
        self._ending: asyncio.TimerHandle | None = None

    async def run(self, job: Callable[[], ResultT]) -> ResultT:
        executor = self._executor
        if executor is None:
            from concurrent.futures import ThreadPoolExecutor

            executor = self._executor = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="odradek-worker")
        return await asyncio.get_running_loop().run_in_executor(executor, job)

    def apart(self, disk: Disk, job: Callable[[Disk], Generator[ResultT, None, None]]) -> ProcessSteps[ResultT]:
        return ProcessSteps(self, Begin(job, durable=getattr(disk, "durable", True)))

    def close(self) -> None:
        """Wait for jobs under way and end threads and processes; whoever embeds a node calls it after the node has
        stopped."""
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None
        if self._ending is not None:
            self._ending.cancel()
        self._end_idle()

    def take(self) -> WorkerProcess:
        """A process that has nothing to do."""
        return self._idle.pop() if self._idle else WorkerProcess()

    def give_back(self, process: WorkerProcess) -> None:
        self._idle.append(process)
        if self._ending is not None:
            self._ending.cancel()
        self._ending = asyncio.get_running_loop().call_later(IDLE_S, self._end_idle)

    def _end_idle(self) -> None:
        self._ending = None
        while self._idle:
            self._idle.pop().end()


class ProcessSteps(Generic[ResultT]):
    """Work that a process does, a step whenever it is asked to."""

    def __init__(self, workers: RealWorkers, begin: Begin) -> None:
        self._workers = workers
        self._begin = begin
        self._process: WorkerProcess | None = None

    async def next(self) -> ResultT | None:
        if self._process is None:
            self._process = await self._workers.run(self._workers.take)
            await self._ask(self._begin)
        result: ResultT | None = await self._ask(Step())
        return result

    async def close(self) -> None:
        if self._process is None:
            return
        with suppress(WorkerLost):  # Then nothing is left open either.
            await self._ask(Close())
        if self._process is not None:
            self._workers.give_back(self._process)
            self._process = None

    async def _ask(self, message: object) -> Any:
        process = self._process
        assert process is not None, "it has begun"
        try:
            answer = await self._workers.run(lambda: process.ask(message))
        except WorkerLost:
            self._process = None
            process.end()
            raise
        if answer.failure is not None:
            raise answer.failure
        return answer.result


class WorkerProcess:
    """A process that answers one message at a time."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", f"from {worker_process.__name__} import main; main()"]
        try:  # A session of its own, or an interrupt that is meant for the node would end it first.
            self._popen = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        except OSError as failure:
            raise WorkerLost(f"no process could be started for it: {failure}") from failure

    def ask(self, message: object) -> Answer:
        """Blocks until it has answered; called on a thread."""
        assert self._popen.stdin is not None, "it was asked for"
        assert self._popen.stdout is not None, "likewise"
        try:
            send(self._popen.stdin, message)
            answer: Answer = receive(self._popen.stdout)
        except (OSError, EOFError) as failure:
            raise WorkerLost(f"the process that did it has ended with {self._popen.poll()}") from failure
        return answer

    def end(self) -> None:
        """Also where it is in the middle of something: nobody waits for that."""
        self._popen.kill()
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                with suppress(OSError):  # What was not read is of no use to anybody.
                    pipe.close()
        self._popen.wait()
