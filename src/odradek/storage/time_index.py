"""From timestamps to offsets in a segment, sparsely: `.timeindex` files and their form in memory.

An entry is the largest timestamp seen so far and the last offset (relative) of the batch that brought it: every record
before that batch has a timestamp not above it.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from operator import le, lt

from odradek.ports import Disk
from odradek.storage.index_file import IndexFile

ENTRY = struct.Struct(">qi")
ENTRY_BYTES = ENTRY.size


class TimeIndex:
    """The index of a segment that still grows."""

    __slots__ = ("base_offset", "offsets", "timestamps")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.timestamps = array("q")
        self.offsets = array("i")

    def __len__(self) -> int:
        return len(self.timestamps)

    def maybe_append(self, timestamp: int, offset: int) -> bool:
        """Add the entry if its timestamp is a new maximum."""
        timestamps = self.timestamps
        if timestamps and timestamp <= timestamps[-1]:
            return False
        timestamps.append(timestamp)
        self.offsets.append(offset - self.base_offset)
        return True

    def offset_before(self, timestamp: int) -> int:
        """An offset before which no record is as late as this timestamp."""
        found = bisect_left(self.timestamps, timestamp) - 1
        return self.base_offset + (self.offsets[found] if found >= 0 else 0)

    def truncate(self, *, end_offset: int) -> None:
        """Forget entries that name this offset or later ones."""
        keep = bisect_right(self.offsets, end_offset - 1 - self.base_offset)
        del self.timestamps[keep:]
        del self.offsets[keep:]

    def last(self) -> tuple[int, int] | None:
        """The largest timestamp and its offset."""
        if not self.timestamps:
            return None
        return self.timestamps[-1], self.base_offset + self.offsets[-1]

    def to_bytes(self) -> bytes:
        return b"".join(map(ENTRY.pack, self.timestamps, self.offsets))

    @classmethod
    def from_bytes(cls, base_offset: int, data: bytes) -> TimeIndex:
        """Read what `to_bytes` wrote; the bytes must have been found sound by `entries_are_sound`."""
        index = cls(base_offset)
        for timestamp, offset in ENTRY.iter_unpack(data):
            index.timestamps.append(timestamp)
            index.offsets.append(offset)
        return index


class SealedTimeIndex:
    """The index of a segment that grows no more, on disk."""

    __slots__ = ("_entries", "base_offset")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self.base_offset = base_offset
        self._entries = IndexFile(disk, path, ENTRY)

    def offset_before(self, timestamp: int) -> int:
        """As `TimeIndex.offset_before`."""
        found = self._entries.last_at_most(timestamp - 1, column=0)
        return self.base_offset + (0 if found is None else found[1])

    def last(self) -> tuple[int, int] | None:
        """As `TimeIndex.last`."""
        found = self._entries.last()
        return None if found is None else (found[0], self.base_offset + found[1])

    def close(self) -> None:
        self._entries.close()

    def moved(self, path: str) -> None:
        self._entries.moved(path)


def entries_are_sound(data: bytes) -> bool:
    """Whether the whole content of a `.timeindex` file can be one: whole entries, ascending."""
    if len(data) % ENTRY_BYTES:
        return False
    index = TimeIndex.from_bytes(0, data)
    timestamps, offsets = index.timestamps, index.offsets
    return (
        all(map(lt, timestamps, timestamps[1:])) and all(map(le, offsets, offsets[1:])) and min(offsets, default=0) >= 0
    )
