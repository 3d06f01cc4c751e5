"""Binary search in a sorted index file of a sealed segment, without loading it.

The active segment keeps its indexes in memory; sealed ones may be thousands, so they stay on disk, are opened when
first asked, and keep one block: a reader that goes through a segment in order finds its next entry there and reads
nothing.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right

from odradek.ports import Disk, File

_BLOCK_ENTRIES = 512


class IndexFile:
    """Fixed-size entries of two numbers, both ascending."""

    __slots__ = ("_block", "_block_number", "_count", "_disk", "_entry", "_file", "_path")

    def __init__(self, disk: Disk, path: str, entry: struct.Struct) -> None:
        self._disk = disk
        self._path = path
        self._entry = entry
        self._file: File | None = None
        self._count = 0
        self._block = b""
        self._block_number = -1

    def last_at_most(self, target: int, column: int) -> tuple[int, int] | None:
        """The last entry whose number in this column is not above the target; None if all are."""
        low, high = self._bounds(target, column)
        found = bisect_right(range(high), target, lo=low, key=lambda number: self._read(number)[column]) - 1
        return self._read(found) if found >= 0 else None

    def first_at_least(self, target: int, column: int) -> tuple[int, int] | None:
        """The first entry whose number in this column is not below the target; None if all are."""
        low, high = self._bounds(target, column)
        found = bisect_left(range(high), target, lo=low, key=lambda number: self._read(number)[column])
        return self._read(found) if found < self._count else None

    def last(self) -> tuple[int, int] | None:
        """The last entry of all."""
        self._open()
        return self._read(self._count - 1) if self._count else None

    def close(self) -> None:
        """Let go of the file; the next question opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._block_number = -1

    def moved(self, path: str) -> None:
        """The file has this path now."""
        self.close()
        self._path = path

    def _open(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self._path)
            self._count = self._file.size() // self._entry.size
        return self._file

    def _read(self, number: int) -> tuple[int, int]:
        block_number, within = divmod(number, _BLOCK_ENTRIES)
        if block_number != self._block_number:
            block_size = _BLOCK_ENTRIES * self._entry.size
            self._block = self._open().read(block_number * block_size, block_size)
            self._block_number = block_number
        first, second = self._entry.unpack_from(self._block, within * self._entry.size)
        return first, second

    def _bounds(self, target: int, column: int) -> tuple[int, int]:
        """Where to search: the kept block, if the target lies inside it, else everything."""
        self._open()
        if self._block_number >= 0:
            first = self._block_number * _BLOCK_ENTRIES
            last = min(first + _BLOCK_ENTRIES, self._count) - 1
            if self._read(first)[column] <= target < self._read(last)[column]:
                return first, last + 1
        return 0, self._count
