"""Partitions whose log could not be made because the disk was full: they are tried again until there is room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from odradek.ids import Uuid

RETRY_MS = 5_000
"""How long a disk is given before it is asked for room again."""

Key: TypeAlias = tuple[Uuid, int]
"""Topic id and partition."""


class Unopened:
    """Which they are, and the one timer for all of them."""

    def __init__(self, open_again: Callable[[Uuid, int], bool]) -> None:
        self._open_again = open_again
        """Whether the partition need not be tried any more; it is noted anew if there was no room again."""
        self._keys: dict[Key, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def note(self, topic_id: Uuid, index: int) -> None:
        self._keys[topic_id, index] = None
        self._arm()

    def close(self) -> None:
        self._keys.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _retry(self) -> None:
        self._timer = None
        for topic_id, index in list(self._keys):
            del self._keys[topic_id, index]
            if not self._open_again(topic_id, index):
                break  # Where there is no room for one there is none for the next.
        self._arm()

    def _arm(self) -> None:
        if self._keys and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(RETRY_MS / 1000, self._retry)
