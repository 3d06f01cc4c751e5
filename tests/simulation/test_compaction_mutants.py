"""The checkers of compaction are worth something: brokers with a planted fault are found out within a few seeds.

Swaps that a start finishes wrongly are planted in `tests/unit/storage/compaction`, where a crash comes at every step.
"""

from __future__ import annotations

from typing import Any

import pytest

from odradek.sim.run import play
from odradek.storage.compaction import batches, cleaning
from odradek.storage.compaction.offset_map import OffsetMap
from odradek.storage.segments import Segments

SEEDS = range(300, 340)

LOST = ("is not there", "is not the same for")


def caught(*expected: str) -> bool:
    return any(words in broken for seed in SEEDS for broken in play(seed, "compaction").broken for words in expected)


def test_the_last_value_of_a_key_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        OffsetMap,
        "are_last",
        lambda self, keys, offsets: [self._offsets[key] < offset for key, offset in zip(keys, offsets, strict=True)],
    )
    assert caught(*LOST)


def test_a_tombstone_is_dropped_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a reader that had the value has come so far."""
    keep = cleaning._Cleaning._without_what_goes_anyway

    def dropping(self: Any, numbers: list[int], flags: bytes, *, keeps_tombstones: bool) -> list[int]:
        return keep(self, numbers, flags, keeps_tombstones=False)

    monkeypatch.setattr(cleaning._Cleaning, "_without_what_goes_anyway", dropping)
    monkeypatch.setattr(cleaning, "all_have_keys", lambda flags: False)
    assert caught("is not the same for")


def test_keys_are_told_apart_by_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two keys with the same hash are one, and the value of one of them goes."""
    hashes = batches.hashes_of
    for module in (batches, cleaning):
        monkeypatch.setattr(module, "hashes_of", lambda columns: [bytes([key[0] & 1]) for key in hashes(columns)])
    assert caught(*LOST)


def test_a_swap_is_served_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new segment is there, and the last of those that it was made from as well."""
    replace = Segments.replace

    def halved(self: Segments, old: Any, cleaned: Any, *, deadline_ms: int) -> bool:
        return replace(self, old[:-1] if len(old) > 1 else old, cleaned, deadline_ms=deadline_ms)

    monkeypatch.setattr(Segments, "replace", halved)
    assert caught("comes after", *LOST)


def test_an_offset_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of a batch moves up by one."""
    as_batch = cleaning.Survivors.as_batch

    def moved(self: Any, *, horizon_ms: int | None) -> bytearray:
        batch = as_batch(self, horizon_ms=horizon_ms)
        batch[0:8] = (int.from_bytes(batch[0:8]) + 1).to_bytes(8)
        return batch

    monkeypatch.setattr(cleaning.Survivors, "as_batch", moved)
    assert caught("was acknowledged as", "comes after", *LOST)


def test_a_map_that_is_full_counts_as_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records behind it are taken for replaced, or not, by what is before them."""
    fill = cleaning._Cleaning._fill_map

    def whole(self: Any) -> Any:
        self._map.capacity = 2
        yield from fill(self)
        if self._plan.sources:
            self._map.end_offset = self._plan.sources[-1].end_offset
            self._map._offsets.update(dict.fromkeys(self._map._offsets, self._map.end_offset))

    monkeypatch.setattr(cleaning._Cleaning, "_fill_map", whole)
    assert caught(*LOST)
