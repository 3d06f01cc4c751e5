"""Threads for work that blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

ResultT = TypeVar("ResultT")

MAX_THREADS = 4
"""Enough to keep several fsyncs under way; more would only compete for the interpreter with the loop's thread."""


class ThreadWorkers:
    """A few threads, started when the first job comes."""

    __slots__ = ("_executor",)

    def __init__(self) -> None:
        self._executor: Executor | None = None

    async def run(self, job: Callable[[], ResultT]) -> ResultT:
        executor = self._executor
        if executor is None:
            from concurrent.futures import ThreadPoolExecutor

            executor = self._executor = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="odradek-worker")
        return await asyncio.get_running_loop().run_in_executor(executor, job)

    def close(self) -> None:
        """Wait for jobs under way and end the threads; whoever embeds a node calls it after the node has stopped."""
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None
