"""From offsets to positions in a segment, sparsely: `.index` files and their form in memory.

An entry is the last offset of a batch (relative to the segment's base offset) and the position where that batch starts.
The batch that holds an offset is found by reading forward from the last entry not above it.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from operator import lt

from odradek.ports import Disk
from odradek.storage.index_file import IndexFile

ENTRY = struct.Struct(">ii")
ENTRY_BYTES = ENTRY.size


class OffsetIndex:
    """The index of a segment that still grows, by an offset (relative) and a position at a time."""

    __slots__ = ("base_offset", "offsets", "positions")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.offsets = array("i")
        self.positions = array("i")

    def __len__(self) -> int:
        return len(self.offsets)

    def position_before(self, offset: int) -> int:
        """Where to start reading forward for this offset; 0 if no entry is below it."""
        found = bisect_right(self.offsets, offset - self.base_offset) - 1
        return self.positions[found] if found >= 0 else 0

    def boundary_before(self, position: int) -> int:
        """The last indexed start of a batch at or before this position; 0 if there is none."""
        found = bisect_right(self.positions, position) - 1
        return self.positions[found] if found >= 0 else 0

    def offset_from(self, position: int) -> int | None:
        """The offset of the first entry at or behind this position; None if all are before it."""
        found = bisect_left(self.positions, position)
        return self.base_offset + self.offsets[found] if found < len(self.positions) else None

    def truncate(self, *, end_offset: int) -> None:
        """Forget entries of batches that end at or beyond this offset."""
        keep = bisect_right(self.offsets, end_offset - 1 - self.base_offset)
        del self.offsets[keep:]
        del self.positions[keep:]

    def to_bytes(self) -> bytes:
        entries = array("i", bytes(ENTRY_BYTES * len(self.offsets)))
        entries[0::2] = self.offsets
        entries[1::2] = self.positions
        if sys.byteorder == "little":
            entries.byteswap()
        return entries.tobytes()

    @classmethod
    def from_bytes(cls, base_offset: int, data: bytes) -> OffsetIndex:
        """Read what `to_bytes` wrote; the bytes must have been found sound by `entries_are_sound`."""
        entries = array("i", data)
        if sys.byteorder == "little":
            entries.byteswap()
        index = cls(base_offset)
        index.offsets = entries[0::2]
        index.positions = entries[1::2]
        return index


class SealedOffsetIndex:
    """The index of a segment that grows no more, on disk."""

    __slots__ = ("_entries", "base_offset")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self.base_offset = base_offset
        self._entries = IndexFile(disk, path, ENTRY)

    def position_before(self, offset: int) -> int:
        """As `OffsetIndex.position_before`."""
        found = self._entries.last_at_most(offset - self.base_offset, column=0)
        return 0 if found is None else found[1]

    def boundary_before(self, position: int) -> int:
        """As `OffsetIndex.boundary_before`."""
        found = self._entries.last_at_most(position, column=1)
        return 0 if found is None else found[1]

    def offset_from(self, position: int) -> int | None:
        """As `OffsetIndex.offset_from`."""
        found = self._entries.first_at_least(position, column=1)
        return None if found is None else self.base_offset + found[0]

    def close(self) -> None:
        self._entries.close()

    def moved(self, path: str) -> None:
        self._entries.moved(path)


def entries_are_sound(data: bytes, *, log_size: int) -> bool:
    """Whether an `.index` file's content can be one: whole entries, both columns ascending, inside the log."""
    if len(data) % ENTRY_BYTES:
        return False
    if not data:
        return True
    index = OffsetIndex.from_bytes(0, data)
    offsets, positions = index.offsets, index.positions
    ascending = all(map(lt, offsets, offsets[1:])) and all(map(lt, positions, positions[1:]))
    return ascending and offsets[0] >= 0 and positions[0] >= 0 and positions[-1] < log_size
