"""The last offset of every key of a stretch of a log, in bounded memory.

Keys are known by the sixteen bytes of their hash (MD5, as in Kafka): two keys with the same one would lose a record, so
nothing shorter will do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import le

from odradek.ids import NO_OFFSET

ENTRY_BYTES = 192
"""Of memory for each key at most: its hash, its offset, and their share of the table, also while that grows.

Kafka's table takes 24. A buffer holds fewer keys here, so a log with many is cleaned in more rounds.
"""


class _Offsets(dict[bytes, int]):
    def __missing__(self, key: bytes) -> int:
        return NO_OFFSET


class OffsetMap:
    """Hashes of keys, and the offset of the last record of each."""

    __slots__ = ("_offsets", "capacity", "end_offset")

    def __init__(self, buffer_bytes: int, load_factor: float) -> None:
        self.capacity = max(int(buffer_bytes / ENTRY_BYTES * load_factor), 1)
        self._offsets = _Offsets()
        self.end_offset: int = 0
        """All records before it are in here; what lies behind it stays as it is."""

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def utilization(self) -> float:
        """How full it is, from 0 to 1."""
        return min(len(self._offsets) / self.capacity, 1.0)

    def take(self, last: Mapping[bytes, int]) -> bool:
        """Add the keys of the next batch, all of them or, if there is no room, none.

        The first batch is taken in any case, or there would be no progress.
        """
        offsets = self._offsets
        is_near_full = len(offsets) + len(last) > self.capacity  # Else none of them need be looked for.
        if is_near_full and offsets and len(offsets) + sum(key not in offsets for key in last) > self.capacity:
            return False
        offsets.update(last)
        return True

    def are_last(self, keys: Iterable[bytes], offsets: Iterable[int]) -> Iterator[bool]:
        """Of each of these records whether none of its key comes later. (Hot: all of a log go through it.)"""
        return map(le, map(self._offsets.__getitem__, keys), offsets)
