"""Aborted transactions: who is told of which, and that none of them is ever forgotten."""

from __future__ import annotations

import pytest
from tests.unit.storage.transactions import end, produce
from tests.unit.storage.worlds import DIRECTORY, Machine, append, open_log

from odradek.sim.disk import Keep
from odradek.storage.config import LogConfig
from odradek.storage.log import Log
from odradek.storage.txn_index import AbortedTxn

SMALL_SEGMENTS = LogConfig(segment_bytes=400)


def aborted_one_by_one(log: Log, count: int, *, first_sequence: int = 0) -> list[AbortedTxn]:
    """So many transactions of one record, each of them aborted."""
    for number in range(count):
        produce(log, first_sequence + number, txn=True)
        end(log, commit=False)
    log.advance_high_watermark(log.log_end_offset)
    return log.aborted_transactions(0, log.log_end_offset)


def told(log: Log, start_offset: int, *, max_bytes: int = 1 << 20) -> list[int]:
    """Where the aborted transactions begin that a reader from this offset on is told of."""
    read = log.read(start_offset, max_bytes=max_bytes, end_offset=log.last_stable_offset, minimum_one=True)
    return [aborted.first_offset for aborted in log.aborted_in(start_offset, read)]


def test_a_reader_is_told_of_what_it_reads_and_not_of_all_that_comes() -> None:
    log = open_log(Machine().disk, LogConfig(index_interval_bytes=0))
    aborted_one_by_one(log, 10)
    assert told(log, 0) == list(range(0, 20, 2))
    assert told(log, 6) == list(range(6, 20, 2))
    # One batch is read, and the index knows the next one.
    assert told(log, 6, max_bytes=1) == [6]
    assert told(log, 7, max_bytes=1) == [6], "of which the marker is read"
    assert told(log, 20) == []


def test_between_two_entries_of_the_index_a_reader_is_told_of_more() -> None:
    log = open_log(Machine().disk, LogConfig(index_interval_bytes=1 << 20))
    aborted_one_by_one(log, 5)
    assert told(log, 0, max_bytes=1) == [0, 2, 4, 6, 8], "to the end of the segment"


def test_a_marker_in_a_later_segment_counts_for_records_before_it() -> None:
    log = open_log(Machine().disk, SMALL_SEGMENTS)
    produce(log, 0, txn=True)
    for _ in range(20):
        append(log, b"plain" * 20)
    end(log, commit=False)
    log.advance_high_watermark(log.log_end_offset)
    assert len(log.segments) > 3
    assert told(log, 0, max_bytes=1) == [0]
    assert told(log, 10, max_bytes=1) == [0], "it may have records anywhere before its marker"


def test_a_sealed_segment_bounds_it_as_an_active_one() -> None:
    log = open_log(Machine().disk, LogConfig(index_interval_bytes=0))
    aborted_one_by_one(log, 10)
    active = [told(log, offset, max_bytes=1) for offset in range(20)]
    log.roll(now_ms=log.producers.get(7).last_timestamp)  # type: ignore[union-attr]
    assert [told(log, offset, max_bytes=1) for offset in range(20)] == active


def test_the_stable_offset_is_never_before_the_start() -> None:
    """DeleteRecords may take the beginning of a transaction that is still open."""
    log = open_log(Machine().disk)
    produce(log, 0, txn=True)
    for _ in range(4):
        append(log, b"plain")
    log.advance_high_watermark(5)
    assert log.last_stable_offset == 0
    log.delete_records_before(3)
    assert log.last_stable_offset == 3
    end(log, commit=False)
    log.advance_high_watermark(6)
    assert log.last_stable_offset == 6
    assert told(log, 3) == [0]


def test_the_stable_offset_is_never_behind_the_watermark() -> None:
    log = open_log(Machine().disk)
    append(log, b"plain")
    append(log, b"plain")
    produce(log, 0, txn=True)
    log.advance_high_watermark(1)
    assert log.last_stable_offset == 1
    log.advance_high_watermark(3)
    assert log.last_stable_offset == 2


@pytest.mark.parametrize("keep", ["process", "power"])
@pytest.mark.parametrize("seed", range(8))
def test_a_clean_stop_keeps_what_was_aborted(keep: Keep, seed: int) -> None:
    """A start that trusts the files takes a missing one for one that was never needed."""
    machine = Machine(seed)
    log = open_log(machine.disk)
    machine.disk.sync_directory("/data")
    append(log, b"plain")
    log.close()
    machine.disk.sync_directory(DIRECTORY)
    log = open_log(machine.disk, recovery_point=1, high_watermark=1, clean=True)
    aborted = aborted_one_by_one(log, 3)
    log.close()
    end_offset = log.log_end_offset
    machine.crash(keep)
    again = open_log(machine.disk, recovery_point=end_offset, high_watermark=end_offset, clean=True)
    assert again.aborted_transactions(0, end_offset) == aborted


@pytest.mark.parametrize("seed", range(8))
def test_a_power_loss_takes_only_what_is_found_again_in_the_batches(seed: int) -> None:
    machine = Machine(seed)
    log = open_log(machine.disk, SMALL_SEGMENTS)
    machine.disk.sync_directory("/data")
    aborted = aborted_one_by_one(log, 12)
    assert len(log.segments) > 3
    work = log.flush_work()
    work()
    log.flushed(work.offset)
    end_offset = log.log_end_offset
    aborted_one_by_one(log, 3, first_sequence=12)
    machine.crash("power")
    again = open_log(machine.disk, SMALL_SEGMENTS, recovery_point=end_offset, high_watermark=end_offset)
    assert again.aborted_transactions(0, end_offset) == aborted


def test_a_truncation_takes_what_was_aborted_behind_it() -> None:
    log = open_log(Machine().disk, SMALL_SEGMENTS)
    aborted = aborted_one_by_one(log, 12)
    for end_offset in (21, 10, 3):
        log.truncate_to(end_offset)
        assert log.aborted_transactions(0, 100) == [each for each in aborted if each.last_offset < end_offset]
    assert log.last_stable_offset == 2, "its marker is gone, so it is open again"
    end(log, commit=True)
    log.advance_high_watermark(log.log_end_offset)
    assert log.aborted_transactions(0, 100) == aborted[:1]


def test_retention_takes_the_files_of_what_it_takes() -> None:
    machine = Machine()
    log = open_log(machine.disk, SMALL_SEGMENTS)
    aborted_one_by_one(log, 12)
    log.delete_records_before(20)
    now_ms = log.producers.get(7).last_timestamp  # type: ignore[union-attr]
    assert log.apply_retention(now_ms)
    log.purge_deleted(now_ms + SMALL_SEGMENTS.file_delete_delay_ms)
    indexes = [name for name in machine.disk.list(DIRECTORY) if name.endswith(".txnindex")]
    assert len(indexes) == sum(bool(segment.txn_index.all()) for segment in log.segments) > 0
    assert told(log, 20) == [20, 22]
