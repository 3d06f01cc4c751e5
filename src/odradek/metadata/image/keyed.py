"""Parts of an image that are a dictionary from a key to something immutable: what their deltas have in common."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


class KeyedDelta(Generic[KeyT, ValueT]):
    """Changes to a dictionary, on their way into the next one."""

    def __init__(self, base: dict[KeyT, ValueT], *, in_place: bool) -> None:
        """`in_place` changes the base itself, which then must be a private copy."""
        self._base = base
        self._in_place = in_place
        self._changed: dict[KeyT, ValueT | None] = {}

    def get(self, key: KeyT) -> ValueT | None:
        return self._changed[key] if key in self._changed else self._base.get(key)

    def set(self, key: KeyT, given: ValueT | None) -> None:
        """None removes the key."""
        self._changed[key] = given

    def next(self) -> dict[KeyT, ValueT] | None:
        """The next dictionary, or None where nothing has changed."""
        if not self._changed:
            return None
        entries = self._base if self._in_place else self._base.copy()
        for key, given in self._changed.items():
            if given is None:
                entries.pop(key, None)
            else:
                entries[key] = given
        return entries
