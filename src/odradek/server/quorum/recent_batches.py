"""The newest batches of a log, in memory: who fetches or replays wants those, and hardly ever others."""

from __future__ import annotations

from bisect import bisect_right

from odradek.ids import NO_OFFSET
from odradek.protocol.records.batch import BatchHeader

MOST_BYTES = 1 << 20


class RecentBatches:
    """An unbroken run of batches up to the end of the log, or nothing."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._size_bytes = 0
        self._end_offset: int = NO_OFFSET
        self._offsets: list[int] = []
        """Where each begins."""
        self._batches: list[tuple[BatchHeader, memoryview]] = []

    def appended(self, batches: list[tuple[BatchHeader, memoryview]], *, start_offset: int, end_offset: int) -> None:
        """These were written, and the log that ended at `start_offset` ends at `end_offset` now."""
        if self._end_offset != start_offset:
            self.clear()
        position = start_offset
        for each in batches:
            header = each[0]
            if header.base_offset != position:
                break
            position = header.last_offset + 1
            self._offsets.append(header.base_offset)
            self._batches.append(each)
            self._size_bytes += header.size
        self._end_offset = position
        if position != end_offset:
            self.clear()
        elif self._size_bytes > self._most_bytes:
            self._let_go()

    def between(self, start_offset: int, end_offset: int) -> list[tuple[BatchHeader, memoryview]] | None:
        """Those from the one that holds `start_offset` on and below `end_offset`; None if not all of them are here."""
        place = bisect_right(self._offsets, start_offset) - 1
        if place < 0 or self._end_offset <= start_offset:
            return None
        found = self._batches[place:]
        if self._end_offset > end_offset:
            while found and found[-1][0].last_offset >= end_offset:
                found.pop()
        return found

    def clear(self) -> None:
        self._size_bytes = 0
        self._end_offset = NO_OFFSET
        self._offsets.clear()
        self._batches.clear()

    def _let_go(self) -> None:
        """Half of them, so that this is seldom done."""
        count = (len(self._batches) + 1) // 2
        self._size_bytes -= sum(header.size for header, _ in self._batches[:count])
        del self._offsets[:count]
        del self._batches[:count]
