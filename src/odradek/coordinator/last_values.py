"""The last value of each key, in the order in which they were written, of any number of keys.

What a dictionary is, but that one with hundreds of thousands of keys takes tens of milliseconds whenever it grows, and
again when it is let go of. Here nothing that is done at once takes longer than some thousand keys need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_PARTS = 256
_CHUNK_BITS = 10
_CHUNK = 1 << _CHUNK_BITS


class LastValues:
    """Set and removed by key, and in the end taken out."""

    def __init__(self) -> None:
        self._places: list[dict[bytes, int]] = [{} for _ in range(_PARTS)]
        """Where the entry of each key is, by a part of the key's hash."""
        self._chunks: list[list[tuple[bytes, bytes] | None] | None] = [[]]
        """Entries in their order; none where one was replaced, and no chunk where all of its entries were."""
        self._filled: list[int] = [0]
        """Entries of each chunk that were not replaced."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def get(self, key: bytes) -> bytes | None:
        place = self._places[hash(key) % _PARTS].get(key)
        if place is None:
            return None
        chunk = self._chunks[place >> _CHUNK_BITS]
        assert chunk is not None
        entry = chunk[place % _CHUNK]
        assert entry is not None
        return entry[1]

    def set(self, key: bytes, content: bytes | None) -> None:
        """None removes it; anything else is the last in the order from now on."""
        places = self._places[hash(key) % _PARTS]
        if key in places:
            self._remove(places.pop(key))
        if content is None:
            return
        chunk = self._chunks[-1]
        if chunk is None or len(chunk) == _CHUNK:
            chunk = []
            self._chunks.append(chunk)
            self._filled.append(0)
        places[key] = (len(self._chunks) - 1) << _CHUNK_BITS | len(chunk)
        chunk.append((key, content))
        self._filled[-1] += 1
        self._size += 1

    def _remove(self, place: int) -> None:
        number = place >> _CHUNK_BITS
        chunk = self._chunks[number]
        assert chunk is not None
        chunk[place % _CHUNK] = None
        self._filled[number] -= 1
        self._size -= 1
        if not self._filled[number] and len(chunk) == _CHUNK:
            self._chunks[number] = None

    def take_out(self) -> Iterator[Iterable[tuple[bytes, bytes]]]:
        """All entries in their order, some at a time, and let go of bit by bit; nothing is set any more."""
        for number, chunk in enumerate(self._chunks):
            self._chunks[number] = None
            if chunk is not None:
                yield filter(None, chunk)
        for places in self._places:
            places.clear()
            yield ()
