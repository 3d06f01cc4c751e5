"""Rolling, truncating, deleting, flushing: what becomes of a log besides appends."""

from __future__ import annotations

import pytest
from tests.unit.storage.worlds import (
    DIRECTORY,
    NOW_MS,
    Machine,
    append,
    at_time,
    batch_of,
    offsets,
    open_log,
    read_all,
    values,
)

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.config import LogConfig
from odradek.storage.log import Log


@pytest.fixture
def log() -> Log:
    return open_log(Machine().disk)


def test_segments_roll_by_size() -> None:
    size = len(batch_of(b"x"))
    machine = Machine()
    log = open_log(machine.disk, LogConfig(segment_bytes=2 * size))
    for number in range(5):
        append(log, b"%d" % number)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    assert values(read_all(log)) == [b"%d" % number for number in range(5)]
    assert values(read_all(log, 3)) == [b"3", b"4"]
    assert log.size_bytes == 5 * size
    assert machine.disk.list(DIRECTORY) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000002.index",
        "00000000000000000002.log",
        "00000000000000000002.snapshot",
        "00000000000000000002.timeindex",
        "00000000000000000004.log",
        "00000000000000000004.snapshot",
        "partition.metadata",
    ]


def test_segments_roll_by_the_batches_timestamps() -> None:
    log = open_log(Machine().disk, LogConfig(segment_ms=1000, segment_jitter_ms=500), draw=lambda bound: bound - 1)
    append(log, b"first", timestamp=NOW_MS)
    append(log, b"same", timestamp=NOW_MS + 501)
    append(log, b"next", timestamp=NOW_MS + 502)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


@pytest.mark.parametrize("restarted", [False, True])
def test_another_segment_ms_counts_for_the_active_segment(restarted: bool) -> None:
    machine = Machine()
    log = open_log(machine.disk, LogConfig(segment_ms=10_000))
    append(log, b"first", timestamp=NOW_MS)
    if restarted:
        log.close()
        log = open_log(machine.disk, LogConfig(segment_ms=10_000), clean=True)
    log.config = LogConfig(segment_ms=20_000)
    append(log, b"same", timestamp=NOW_MS + 15_000)
    assert len(log.segments) == 1, "raised"
    log.config = LogConfig(segment_ms=1_000)
    assert not log.maybe_roll(NOW_MS + 1_000)
    append(log, b"next", timestamp=NOW_MS + 15_001)
    assert [segment.base_offset for segment in log.segments] == [0, 2], "lowered"
    log.config = LogConfig(segment_ms=500)
    assert not log.maybe_roll(NOW_MS + 15_501)
    assert log.maybe_roll(NOW_MS + 15_502)


def test_each_segment_draws_its_own_jitter_and_keeps_it() -> None:
    drawn = iter([100, 200, 300])
    config = LogConfig(segment_ms=1000, segment_jitter_ms=500)
    log = open_log(Machine().disk, config, draw=lambda bound: next(drawn))
    append(log, b"first", timestamp=NOW_MS)
    log.config = LogConfig(segment_ms=2000, segment_jitter_ms=500)
    assert not log.maybe_roll(NOW_MS + 1900)
    assert log.maybe_roll(NOW_MS + 1901)
    append(log, b"second", timestamp=NOW_MS)
    assert not log.maybe_roll(NOW_MS + 1800)
    assert log.maybe_roll(NOW_MS + 1801)


def test_segments_roll_when_the_index_is_full() -> None:
    log = open_log(Machine().disk, LogConfig(index_interval_bytes=0, segment_index_bytes=24))
    for number in range(5):
        append(log, b"%d" % number, timestamp=NOW_MS + number)
    assert len(log.segments) > 1
    assert values(read_all(log)) == [b"%d" % number for number in range(5)]


def test_segments_roll_before_relative_offsets_overflow() -> None:
    log = open_log(Machine().disk)
    log.append_as_follower(batch_of(b"a", base_offset=0), now_ms=NOW_MS)
    log.append_as_follower(batch_of(b"b", base_offset=(1 << 31) - 1), now_ms=NOW_MS)
    log.append_as_follower(batch_of(b"c", base_offset=1 << 31), now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 1 << 31]
    assert values(read_all(log)) == [b"a", b"b", b"c"]


def test_an_idle_segment_rolls_when_asked() -> None:
    log = open_log(Machine().disk, LogConfig(segment_ms=1000))
    assert not log.maybe_roll(NOW_MS + 5000)
    append(log, b"a")
    assert not log.maybe_roll(NOW_MS + 1000)
    assert log.maybe_roll(NOW_MS + 1001)
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_truncation_forgets_the_tail() -> None:
    log = open_log(Machine().disk, LogConfig(segment_bytes=150, index_interval_bytes=0))
    for number in range(10):
        append(log, b"%d" % number, leader_epoch=number // 4, timestamp=NOW_MS + number)
    log.advance_high_watermark(10)
    assert not log.truncate_to(10)
    for target in (9, 5, 4, 1):
        assert log.truncate_to(target)
        assert log.log_end_offset == log.high_watermark == target
        assert values(read_all(log)) == [b"%d" % number for number in range(target)]
        assert log.leader_epochs.entries == [(epoch, 4 * epoch) for epoch in range(3) if 4 * epoch < target]
        newest = at_time(log, log.max_timestamp)
        assert newest is not None
        assert newest.offset == target - 1
    append(log, b"new", leader_epoch=7)
    assert values(read_all(log)) == [b"0", b"new"]
    log.truncate_to(0)
    assert (log.log_end_offset, log.size_bytes, log.leader_epochs.entries) == (0, 0, [])


def test_truncation_inside_a_batch_takes_the_whole_batch(log: Log) -> None:
    append(log, b"a")
    append(log, b"b", b"c", b"d")
    log.truncate_to(2)
    assert log.log_end_offset == 1


def test_starting_over_elsewhere(log: Log) -> None:
    append(log, b"a")
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (100, 100, 100)
    append(log, b"b")
    assert offsets(read_all(log)) == [100]


def test_delete_records_moves_the_start(log: Log) -> None:
    for number in range(4):
        append(log, b"%d" % number, leader_epoch=number)
    log.advance_high_watermark(3)
    with pytest.raises(KafkaError) as refused:
        log.delete_records_before(4)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records_before(2) == 2
    assert log.delete_records_before(1) == 2
    assert log.leader_epochs.entries == [(2, 2), (3, 3)]
    with pytest.raises(KafkaError):
        log.read(1, max_bytes=1000, end_offset=3, minimum_one=True)


def test_flush_follows_the_settings() -> None:
    log = open_log(Machine().disk, LogConfig(flush_messages=3, flush_ms=1000))
    assert not log.needs_flush(NOW_MS + 10_000)
    append(log, b"a", b"b")
    assert not log.flush_due(NOW_MS + 999)
    assert log.flush_due(NOW_MS + 1000)
    append(log, b"c")
    assert log.flush_due(NOW_MS)
    work = log.flush_work()
    append(log, b"d")
    work()
    log.flushed(work.offset)
    assert (log.recovery_point, log.unflushed_messages) == (3, 1)
    log.roll(NOW_MS)
    assert log.needs_flush(NOW_MS)
    assert not log.flush_due(NOW_MS)


def test_a_flush_that_a_truncation_has_overtaken_vouches_for_nothing() -> None:
    """What came in place of what was cut was not there when the segments were synced."""
    machine = Machine(seed=1)
    log = open_log(machine.disk)
    for number in range(5):
        append(log, b"old %d" % number)
    work = log.flush_work()
    work()
    log.truncate_to(2)
    for number in range(8):
        append(log, b"new %d" % number, leader_epoch=1)
    log.flushed(work.offset)
    assert log.recovery_point == 0
    again = log.flush_work()
    again()
    log.flushed(again.offset)
    assert log.recovery_point == 10
    log.truncate_fully_and_start_at(3)
    append(log, b"newest")
    log.flushed(again.offset)
    assert log.recovery_point == 3


def test_a_deleted_segment_does_not_fail_the_flush() -> None:
    log = open_log(Machine().disk, LogConfig(segment_bytes=100, retention_bytes=0, file_delete_delay_ms=0))
    append(log, b"a")
    append(log, b"b")
    log.advance_high_watermark(2)
    work = log.flush_work()
    assert log.apply_retention(NOW_MS) == 2
    assert log.purge_deleted(NOW_MS) is None
    work()
