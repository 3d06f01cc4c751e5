"""Receive buffers, shared by all connections of a node: an idle connection holds none."""

from __future__ import annotations

SMALLEST_BUFFER = 256 * 1024
"""Room for all that a producer has under way by default, five requests with a batch of 16 KiB for some partitions each.
What came together is appended in one turn of the loop, and leaves for the followers together: with a quarter of this, a
replicated batch costs a cluster a tenth to a fifth more."""
LARGEST_POOLED_BUFFER = 4 * 1024 * 1024
POOLED_BYTES_PER_SIZE = 8 * 1024 * 1024
_POISON = 0xDD


class Buffer:
    """A stretch of memory and the writable view of it that everybody uses."""

    __slots__ = ("size", "view")

    def __init__(self, size: int) -> None:
        self.size = size
        self.view = memoryview(bytearray(size))


class BufferPool:
    """Buffers in powers of two; what is larger than the largest class is made and dropped as needed.

    With `poison`, a buffer that comes back is overwritten, so that a view which outlived its request is seen to be
    wrong at once: simulations run that way.
    """

    def __init__(self, *, poison: bool = False) -> None:
        self._free: dict[int, list[Buffer]] = {}
        self._poison = poison
        size = SMALLEST_BUFFER
        while size <= LARGEST_POOLED_BUFFER:
            self._free[size] = []
            size *= 2
        self._smallest = self._free[SMALLEST_BUFFER]
        self.spare = Buffer(SMALLEST_BUFFER)
        """Where bytes may arrive for whoever has none: a request that is answered at once never takes it."""

    def take_spare(self) -> Buffer:
        """Keep what has just arrived in the spare one."""
        spare, self.spare = self.spare, self.take(SMALLEST_BUFFER)
        return spare

    def take(self, at_least: int) -> Buffer:
        if at_least <= SMALLEST_BUFFER:
            return self._smallest.pop() if self._smallest else Buffer(SMALLEST_BUFFER)
        size = 1 << (at_least - 1).bit_length()
        free = self._free.get(size)
        return free.pop() if free else Buffer(size)

    def give_back(self, buffer: Buffer, used: int) -> None:
        """`used` is how much of it, from its beginning on, held something."""
        if self._poison:
            buffer.view[:used] = bytes((_POISON,)) * used
        free = self._free.get(buffer.size)
        if free is not None and len(free) * buffer.size < POOLED_BYTES_PER_SIZE:
            free.append(buffer)
