"""The one timer of a quorum's core: the core says when it has something to do, this calls at that time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek.metadata.raft.core import Raft
from odradek.ports import Clock


class RaftTimer:
    """`on_due` is called when the core's time has come."""

    def __init__(self, raft: Raft, clock: Clock, on_due: Callable[[], None]) -> None:
        self._raft = raft
        self._clock = clock
        self._on_due = on_due
        self._handle: asyncio.TimerHandle | None = None
        self._handle_ms = 0

    def set(self) -> None:
        """One that is set too early stays: every fetch puts off what is due, and hardly ever does it come to that."""
        due_ms = self._raft.next_due_ms
        if due_ms is None or (self._handle is not None and self._handle_ms <= due_ms):
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle_ms = due_ms
        wait_ms = max(due_ms - self._clock.monotonic_ms(), 0)
        self._handle = asyncio.get_running_loop().call_later((wait_ms + 1) / 1000, self._tick)

    def _tick(self) -> None:
        self._handle = None
        due_ms = self._raft.next_due_ms
        if due_ms is not None and due_ms <= self._clock.monotonic_ms():
            self._on_due()
        else:
            self.set()

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
