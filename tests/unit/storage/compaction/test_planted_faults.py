"""The model is worth something: a cleaner with a planted fault is found out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.unit.storage.compaction.test_model import CompactedLogAndModel

from odradek.protocol.records.batch import BatchHeader
from odradek.storage import recovery
from odradek.storage.compaction import choice, cleaning
from odradek.storage.compaction.cleaned_segment import CleanedSegment
from odradek.storage.compaction.offset_map import OffsetMap
from odradek.storage.compaction.transactions import CleanedTransactions
from odradek.storage.file_names import SWAP_SUFFIX

FIRST_FOUND = settings(
    max_examples=2000, stateful_step_count=40, deadline=None, phases=[Phase.generate], derandomize=True, database=None
)
"""The first example that fails will do; nobody needs the smallest one."""


def is_found_out() -> bool:
    try:
        run_state_machine_as_test(CompactedLogAndModel, settings=FIRST_FOUND)
    except AssertionError:
        return True
    except BaseExceptionGroup as several:  # Of hypothesis, where there is more than one way to fail.
        return several.subgroup(AssertionError) is not None
    return False


def a_tombstone_is_dropped_early(patch: Callable[..., None]) -> None:
    """While the values that it deletes are still there, in the part that the round does not reach."""
    keep = cleaning._Cleaning._without_what_goes_anyway

    def dropping(self: Any, numbers: list[int], flags: bytes, *, keeps_tombstones: bool) -> list[int]:
        return keep(self, numbers, flags, keeps_tombstones=False)

    patch(cleaning._Cleaning, "_without_what_goes_anyway", dropping)
    patch(cleaning, "all_have_keys", lambda flags: False)


def a_last_value_is_dropped(patch: Callable[..., None]) -> None:
    def none_is_last(self: OffsetMap, keys: Any, offsets: Any) -> Any:
        return (self._offsets[key] < offset for key, offset in zip(keys, offsets, strict=True))

    patch(OffsetMap, "are_last", none_is_last)


def what_is_not_decided_is_cleaned(patch: Callable[..., None]) -> None:
    """Up to the active segment, whatever a transaction or a truncation may do to it."""
    patch(choice, "_first_uncleanable", lambda log, first_dirty_number, now_ms: len(log.segments) - 1)


def an_aborted_record_replaces_an_older_one(patch: Callable[..., None]) -> None:
    map_batch = cleaning._Cleaning._map_batch

    def all_count(self: Any, header: BatchHeader, batch: memoryview, transactions: CleanedTransactions) -> bool:
        return map_batch(self, header, batch, CleanedTransactions(()))

    patch(cleaning._Cleaning, "_map_batch", all_count)


def the_marker_of_a_transaction_that_is_left_goes(patch: Callable[..., None]) -> None:
    marker = CleanedTransactions.marker

    def at_once(self: CleanedTransactions, header: BatchHeader, batch: memoryview) -> tuple[bool, None]:
        marker(self, header, batch)
        return True, None

    patch(CleanedTransactions, "marker", at_once)
    patch(cleaning, "delete_horizon", lambda header: 0 if header.is_control else None)


def the_transaction_index_forgets(patch: Callable[..., None]) -> None:
    patch(CleanedSegment, "append_aborted", lambda self, aborted: None)


def a_half_done_swap_is_undone_by_halves(patch: Callable[..., None]) -> None:
    """The start throws away what was complete, though what it was made from is gone."""

    def forget(disk: Any, directory: str, names: list[str]) -> None:
        for name in names:
            if name.endswith(SWAP_SUFFIX):
                disk.unlink(f"{directory}/{name}")

    patch(recovery, "_finish_swaps", forget)


def what_was_replaced_stays_beside_it(patch: Callable[..., None]) -> None:
    def rename_only(disk: Any, directory: str, names: list[str]) -> None:
        for name in names:
            if name.endswith(SWAP_SUFFIX):
                disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")

    patch(recovery, "_finish_swaps", rename_only)


def an_offset_is_used_again(patch: Callable[..., None]) -> None:
    """A batch that has lost its last records ends where the last one that it has kept is."""
    batch_of = cleaning.Survivors.as_batch

    def shortened(self: Any, *, horizon_ms: int | None) -> bytearray:
        batch = batch_of(self, horizon_ms=horizon_ms)
        batch[0:8] = (int.from_bytes(batch[0:8]) + 1).to_bytes(8)
        return batch

    patch(cleaning.Survivors, "as_batch", shortened)


def a_map_that_is_full_counts_as_complete(patch: Callable[..., None]) -> None:
    fill = cleaning._Cleaning._fill_map

    def whole(self: Any) -> Any:
        yield from fill(self)
        if self._plan.sources:
            self._map.end_offset = self._plan.sources[-1].end_offset

    patch(cleaning._Cleaning, "_fill_map", whole)


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(a_tombstone_is_dropped_early, marks=pytest.mark.slow),
        a_last_value_is_dropped,
        what_is_not_decided_is_cleaned,
        pytest.param(an_aborted_record_replaces_an_older_one, marks=pytest.mark.slow),
        pytest.param(the_marker_of_a_transaction_that_is_left_goes, marks=pytest.mark.slow),
        pytest.param(the_transaction_index_forgets, marks=pytest.mark.slow),
        a_half_done_swap_is_undone_by_halves,
        pytest.param(what_was_replaced_stays_beside_it, marks=pytest.mark.slow),
        an_offset_is_used_again,
        a_map_that_is_full_counts_as_complete,
    ],
)
def test_a_planted_fault_is_found_out(
    plant: Callable[[Callable[..., None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch.setattr)
    assert is_found_out()
