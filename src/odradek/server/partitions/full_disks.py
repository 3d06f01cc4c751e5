"""Log directories without room: what to say, when to let others lead, and when there is room again.

A full disk refuses writes and serves reads. Where others wait for what cannot be written here, as followers that could
lead or as a leader that waits for its followers, the broker asks to be fenced until there is room: it leaves every ISR,
stays a follower of everything, and catches up by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from odradek.ports import Disk
from odradek.storage.directories import LogDirectory

log = logging.getLogger(__name__)

FIRST_PAUSE_MS = 1_000
LONGEST_PAUSE_MS = 64_000
"""How long a disk is given before it is asked for room; longer when there seemed to be some, and was not enough."""

LEAST_ROOM_BYTES = 1 << 20
LEAST_ROOM_PERCENT = 1
"""Less would be full again before anybody has noticed."""


class FullDisks:
    """Which directories are full, and whether this broker stands aside for it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._full: dict[LogDirectory, None] = {}
        self._pause_ms = FIRST_PAUSE_MS
        self._timer: asyncio.TimerHandle | None = None
        self.stands_aside = False
        """Whether others should do without this broker, as it cannot write what they wait for."""
        self.on_change: Callable[[], None] = lambda: None
        """Told when `stands_aside` has changed."""

    def refused(self, directory: LogDirectory, *, others_wait: bool) -> None:
        """There was no room for a write; `others_wait` says that they could do without this broker."""
        if directory not in self._full:
            log.error("Writes are refused: no space left in %s", directory.path)
            self._full[directory] = None
            with suppress(OSError):  # A disk that fails as well is told by the next write.
                directory.give_back_room()
        if others_wait and not self.stands_aside:
            log.error("Others should do without this broker until there is room again in %s", directory.path)
            self.stands_aside = True
            self.on_change()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._pause_ms / 1000, self._look)
            self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        for directory in list(self._full):
            if not directory.online or self._has_room(directory):
                log.info("There is room again in %s", directory.path)
                del self._full[directory]
        if self._full:
            self._timer = asyncio.get_running_loop().call_later(FIRST_PAUSE_MS / 1000, self._look)
        elif self.stands_aside:
            self.stands_aside = False
            self.on_change()

    def _has_room(self, directory: LogDirectory) -> bool:
        try:
            usage = self._disk.usage(directory.path)
        except OSError:
            return False
        least_bytes = max(usage.total_bytes * LEAST_ROOM_PERCENT // 100, LEAST_ROOM_BYTES)
        return usage.usable_bytes >= least_bytes
