"""What is worth a cleaning, and how far it may go."""

from __future__ import annotations

import pytest
from tests.unit.storage.compaction.worlds import COMPACTED, clean, put, settle
from tests.unit.storage.worlds import NOW_MS, Machine, open_log

from odradek.storage.compaction.choice import cleanable
from odradek.storage.log import Log
from odradek.values import replace

DAY_MS = 86_400_000


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def log(machine: Machine) -> Log:
    return open_log(machine.disk, COMPACTED)


def add_segments(log: Log, count: int, *, timestamp: int = NOW_MS) -> int:
    """So many that are sealed, one batch each; the size of one."""
    for _ in range(count):
        put(log, (b"key", b"value"), timestamp=timestamp)
        log.roll(NOW_MS)
    return log.segments[-2].size


def test_all_that_is_sealed_committed_and_synced_is_dirty_at_first(log: Log) -> None:
    size = add_segments(log, 3)
    settle(log)
    what = cleanable(log, NOW_MS)
    assert (what.first_dirty_offset, what.end_offset) == (0, 3)
    assert (what.clean_bytes, what.dirty_bytes) == (0, 3 * size)
    assert what.dirty_ratio == 1.0
    assert what.is_due(0.5)


def test_nothing_is_cleaned_that_no_sync_has_kept(log: Log) -> None:
    add_segments(log, 2)
    settle(log)
    add_segments(log, 2)
    log.advance_high_watermark(log.log_end_offset)
    assert cleanable(log, NOW_MS).end_offset == 2


def test_nothing_is_cleaned_that_is_not_committed(log: Log) -> None:
    add_segments(log, 4)
    settle(log)
    log.truncate_to(4)
    assert cleanable(log, NOW_MS).end_offset == 4
    other = open_log(Machine().disk, COMPACTED)
    add_segments(other, 4)
    other.advance_high_watermark(3)
    other.flushed(4)
    assert cleanable(other, NOW_MS).end_offset == 3


def test_young_segments_wait_for_the_least_lag(log: Log) -> None:
    add_segments(log, 2, timestamp=NOW_MS - 1001)
    add_segments(log, 1, timestamp=NOW_MS - 999)
    add_segments(log, 1, timestamp=NOW_MS - 1001)
    settle(log)
    log.config = replace(COMPACTED, min_compaction_lag_ms=1000)
    assert cleanable(log, NOW_MS).end_offset == 2
    assert cleanable(log, NOW_MS + 2).end_offset == 4


def test_the_ratio_counts_what_is_dirty_since_the_last_cleaning(machine: Machine, log: Log) -> None:
    size = add_segments(log, 3)
    settle(log)
    clean(log, machine.disk)
    what = cleanable(log, NOW_MS)
    assert (what.dirty_bytes, what.dirty_ratio) == (0, 0.0)
    assert not what.is_due(0.0)
    clean_bytes = sum(segment.size for segment in log.segments[:-1])
    add_segments(log, 1)
    settle(log)
    what = cleanable(log, NOW_MS)
    assert what.dirty_ratio == size / (clean_bytes + size)
    assert what.is_due(what.dirty_ratio - 0.01)
    assert not what.is_due(what.dirty_ratio)


def test_what_is_overdue_is_due_however_little(machine: Machine, log: Log) -> None:
    add_segments(log, 5, timestamp=NOW_MS - 3 * DAY_MS)
    settle(log)
    clean(log, machine.disk)
    add_segments(log, 1, timestamp=NOW_MS - DAY_MS)
    add_segments(log, 1)
    settle(log)
    log.config = replace(COMPACTED, max_compaction_lag_ms=DAY_MS)
    assert not cleanable(log, NOW_MS).is_due(1.0)
    late = cleanable(log, NOW_MS + 7)
    assert late.overdue_ms == 7
    assert late.is_due(1.0)


def test_the_most_lag_also_rolls_the_active_segment(log: Log) -> None:
    log.config = replace(COMPACTED, max_compaction_lag_ms=1000)
    put(log, (b"key", b"value"), timestamp=NOW_MS)
    assert not log.maybe_roll(NOW_MS + 1000)
    assert log.maybe_roll(NOW_MS + 1001)
    log.config = replace(log.config, cleanup_policy=("delete",))
    put(log, (b"key", b"value"), timestamp=NOW_MS)
    assert not log.maybe_roll(NOW_MS + 1001)


def test_a_checkpoint_outside_of_the_log_is_not_believed(log: Log) -> None:
    add_segments(log, 3)
    settle(log)
    log.cleaned_offset = 4
    assert cleanable(log, NOW_MS).first_dirty_offset == 0
    log.cleaned_offset = 1
    log.delete_records_before(2)
    assert cleanable(log, NOW_MS).first_dirty_offset == 2


def test_a_truncation_takes_the_clean_part_back_and_says_so(log: Log) -> None:
    told: list[int] = []
    log.keep_cleaned_offset = lambda: told.append(log.cleaned_offset)
    add_segments(log, 3)
    log.cleaned_offset = 2
    log.truncate_to(3)
    log.truncate_to(2)
    assert told == []
    log.truncate_to(1)
    assert told == [1]
    assert log.cleaned_offset == 1
