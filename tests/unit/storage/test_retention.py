"""Which segments go, when, and how their files leave the disk."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.storage.worlds import (
    DIRECTORY,
    NOW_MS,
    Machine,
    append,
    batch_of,
    content,
    open_log,
    read_all,
    values,
)

from odradek.sim.loop import Crashed
from odradek.storage.config import LogConfig
from odradek.storage.log import Log

SIZE = len(batch_of(b"x"))


def five_segments(machine: Machine, **config: Any) -> Log:
    """One batch a segment, a second apart, all committed."""
    log = open_log(machine.disk, LogConfig(segment_bytes=SIZE, **config))
    for number in range(5):
        append(log, b"%d" % number, timestamp=NOW_MS + 1000 * number, leader_epoch=number)
    log.advance_high_watermark(5)
    return log


def test_by_time() -> None:
    log = five_segments(Machine(), retention_ms=1500)
    assert log.apply_retention(NOW_MS + 1500) == 0
    assert log.apply_retention(NOW_MS + 1501) == 1
    assert (log.log_start_offset, values(read_all(log))) == (1, [b"1", b"2", b"3", b"4"])
    assert log.leader_epochs.entries[0] == (1, 1)
    assert log.apply_retention(NOW_MS + 100_000) == 4
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (5, 5, 0)
    append(log, b"5")
    assert values(read_all(log)) == [b"5"]


def test_by_size() -> None:
    log = five_segments(Machine(), retention_bytes=2 * SIZE + 1, retention_ms=-1)
    assert log.apply_retention(NOW_MS) == 2
    assert log.log_start_offset == 2
    assert log.size_bytes == 3 * SIZE


@pytest.mark.parametrize("policy", [("compact",), ("compact", "delete"), ("delete",)])
def test_by_log_start(policy: tuple[str, ...]) -> None:
    log = five_segments(Machine(), retention_ms=-1)
    log.config = LogConfig(cleanup_policy=policy, retention_ms=-1)
    log.delete_records_before(3)
    assert log.apply_retention(NOW_MS) == 3
    log.delete_records_before(5)
    assert log.apply_retention(NOW_MS) == 1, "the active segment stays for the next append"
    assert log.log_start_offset == 5


def test_a_compacted_log_keeps_what_is_old() -> None:
    log = five_segments(Machine())
    log.config = LogConfig(cleanup_policy=("compact",), retention_ms=0, retention_bytes=0)
    assert log.apply_retention(NOW_MS + 10**9) == 0


def test_nothing_above_the_watermark_goes() -> None:
    log = open_log(Machine().disk, LogConfig(segment_bytes=SIZE, retention_ms=0, retention_bytes=0))
    for number in range(5):
        append(log, b"%d" % number)
    log.advance_high_watermark(2)
    assert log.apply_retention(NOW_MS + 10**9) == 2
    assert log.log_start_offset == 2


def test_no_timestamps_count_from_when_the_segment_was_seen() -> None:
    log = open_log(Machine().disk, LogConfig(segment_bytes=SIZE, retention_ms=1000))
    append(log, b"0", timestamp=-1)
    append(log, b"1", timestamp=-1)
    log.advance_high_watermark(2)
    assert log.apply_retention(NOW_MS + 1000) == 0
    assert log.apply_retention(NOW_MS + 1001) == 2


def test_sealed_segments_know_their_timestamps_after_a_restart() -> None:
    machine = Machine()
    log = five_segments(machine, retention_ms=1500)
    log.close()
    again = open_log(machine.disk, log.config, clean=True, recovery_point=5, high_watermark=5, now_ms=NOW_MS + 10**6)
    assert again.apply_retention(NOW_MS + 2501) == 2


def test_files_are_renamed_now_and_unlinked_later() -> None:
    machine = Machine()
    log = five_segments(machine, retention_bytes=4 * SIZE, retention_ms=-1, file_delete_delay_ms=60_000)
    slow_reader = log.read(0, max_bytes=1000, end_offset=5, minimum_one=True).records
    log.apply_retention(NOW_MS)
    gone = [name for name in machine.disk.list(DIRECTORY) if name.endswith(".deleted")]
    assert gone == [
        "00000000000000000000.index.deleted",
        "00000000000000000000.log.deleted",
        "00000000000000000000.timeindex.deleted",
    ]
    assert log.purge_deleted(NOW_MS + 59_999) == NOW_MS + 60_000
    assert values([content(slow_reader)]) == [b"0"], "whoever began to read can finish"
    assert log.purge_deleted(NOW_MS + 60_000) is None
    assert not [name for name in machine.disk.list(DIRECTORY) if name.startswith("00000000000000000000")]


def test_snapshots_go_with_their_segments() -> None:
    machine = Machine()
    log = five_segments(machine, retention_bytes=SIZE, retention_ms=-1, file_delete_delay_ms=0)
    assert log.apply_retention(NOW_MS) == 4
    log.purge_deleted(NOW_MS)
    assert [name for name in machine.disk.list(DIRECTORY) if name.endswith("snapshot")] == [
        "00000000000000000004.snapshot"
    ]


@pytest.mark.parametrize("kept", ["none", "the newest"])
@pytest.mark.parametrize("segments", [1, 3])
def test_it_frees_a_disk_that_is_full_to_the_last_byte(segments: int, kept: str) -> None:
    for free in range(120):
        machine = Machine()
        config = LogConfig(segment_bytes=3 * SIZE, index_interval_bytes=0, retention_ms=1000, file_delete_delay_ms=0)
        log = open_log(machine.disk, config)
        for number in range(3 * segments):
            append(log, b"%d" % number, timestamp=NOW_MS, producer_id=7, producer_epoch=0, base_sequence=number)
        if kept == "the newest":
            append(log, b"new", timestamp=NOW_MS + 2000)
        end = log.log_end_offset
        log.advance_high_watermark(end)
        machine.device.capacity = machine.device.used + free
        assert log.apply_retention(NOW_MS + 1001) == segments, f"with {free} bytes free"
        log.purge_deleted(NOW_MS + 1001)
        assert machine.device.capacity - machine.device.used >= segments * 3 * SIZE
        assert log.log_start_offset == 3 * segments
        assert log.size_bytes == (0 if kept == "none" else len(batch_of(b"new")))
        append(log, b"again", timestamp=NOW_MS + 2000)
        again = open_log(machine.crash("process"), config, high_watermark=end)
        assert values(read_all(again)) == ([b"again"] if kept == "none" else [b"new", b"again"])
        assert (again.log_start_offset, again.log_end_offset) == (3 * segments, end + 1)


def test_a_crash_between_the_new_segment_and_the_deletion_on_a_full_disk_loses_no_offset() -> None:
    machine = Machine()
    config = LogConfig(retention_ms=1000)
    log = open_log(machine.disk, config)
    append(log, b"old", timestamp=NOW_MS)
    log.advance_high_watermark(1)
    machine.device.capacity = machine.device.used
    machine.device.on_change = lambda path, length: 0 if path.endswith("00000000000000000000.log") else None
    with pytest.raises(Crashed):
        log.apply_retention(NOW_MS + 1001)
    machine.device.capacity = 1 << 40  # The segment gets its indexes now: without room its partition waits for some.
    again = open_log(machine.crash("process"), config, high_watermark=1)
    assert again.log_end_offset == 1


def test_half_a_snapshot_is_not_left_on_a_full_disk() -> None:
    machine = Machine()
    log = open_log(machine.disk)
    append(log, b"x", producer_id=7, producer_epoch=0, base_sequence=0)
    machine.device.capacity = machine.device.used + 3
    with pytest.raises(OSError, match="No space left"):
        log.roll(NOW_MS)
    assert not [name for name in machine.disk.list(DIRECTORY) if name.endswith(".snapshot")]
