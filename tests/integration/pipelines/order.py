"""The order in which a table follows changes, by its definition and not as it is computed: one record at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Placed(Protocol):
    @property
    def key(self) -> str: ...

    @property
    def topic(self) -> str: ...

    @property
    def incarnation(self) -> int: ...

    @property
    def partition(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def timestamp_ms(self) -> int: ...


PlacedT = TypeVar("PlacedT", bound=Placed)


def newest_of_each(changes: Sequence[PlacedT]) -> dict[str, PlacedT]:
    """The record that counts for each key, over the whole history."""
    found: dict[str, PlacedT] = {}
    for key in {each.key for each in changes}:
        mine = [each for each in changes if each.key == key]

        def place(each: PlacedT, mine: Sequence[PlacedT] = mine) -> tuple[object, ...]:
            own = max(
                other.timestamp_ms
                for other in mine
                if (other.topic, other.incarnation, other.partition) == (each.topic, each.incarnation, each.partition)
                and other.offset <= each.offset
            )
            before = [o.timestamp_ms for o in mine if o.topic == each.topic and o.incarnation < each.incarnation]
            return max([own, *before]), each.topic, each.incarnation, own, each.partition, each.offset

        found[key] = max(mine, key=place)
    return found
