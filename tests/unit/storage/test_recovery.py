"""What a crash or a damaged file leaves, and what opening the log makes of it."""

from __future__ import annotations

import logging
import struct

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

from odradek.ids import NO_TIMESTAMP, LeaderEpoch
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.sim.loop import Crashed
from odradek.storage.config import LogConfig
from odradek.storage.log import Log

SMALL = LogConfig(segment_bytes=300, index_interval_bytes=80)
FIRST = f"{DIRECTORY}/00000000000000000000"


def filled(machine: Machine, count: int = 10, config: LogConfig = SMALL) -> Log:
    log = open_log(machine.disk, config)
    for number in range(count):
        append(log, b"%d" % number, timestamp=NOW_MS + number, leader_epoch=number // 4)
    return log


def check_whole(log: Log, count: int) -> None:
    """The log has these records, its indexes find them, and it goes on."""
    expected = [b"%d" % number for number in range(count)]
    assert log.log_end_offset == count
    assert values(read_all(log)) == expected
    for start in range(count):
        assert offsets(read_all(log, start, max_bytes=1)) == list(range(start, count))
        found = at_time(log, NOW_MS + start)
        assert found is not None
        assert found.offset == start
    assert log.leader_epochs.entries == [(epoch, 4 * epoch) for epoch in range((count + 3) // 4)]
    append(log, b"more", leader_epoch=99)
    assert values(read_all(log)) == [*expected, b"more"]


def test_a_clean_log_opens_without_reading_batches() -> None:
    machine = Machine()
    filled(machine).close()
    machine.crash("power")
    check_whole(open_log(machine.disk, SMALL, clean=True, recovery_point=10), 10)


def test_a_killed_process_loses_nothing() -> None:
    machine = Machine()
    filled(machine)
    machine.crash("process")
    check_whole(open_log(machine.disk, SMALL), 10)


def test_a_flushed_log_survives_a_power_loss() -> None:
    machine = Machine(seed=3)
    log = filled(machine)
    work = log.flush_work()
    work()
    log.flushed(work.offset)
    machine.crash("power")
    check_whole(open_log(machine.disk, SMALL, recovery_point=log.recovery_point), 10)


@pytest.mark.parametrize("flushed", range(0, 10, 3))
@pytest.mark.parametrize("seed", range(8))
def test_a_power_loss_takes_a_tail_at_most(flushed: int, seed: int) -> None:
    machine = Machine(seed)
    log = open_log(machine.disk, SMALL)
    for number in range(10):
        append(log, b"%d" % number, timestamp=NOW_MS + number, leader_epoch=number // 4)
        if number + 1 == flushed:
            work = log.flush_work()
            work()
            log.flushed(work.offset)
    machine.crash("power")
    again = open_log(machine.disk, SMALL, recovery_point=flushed)
    assert flushed <= again.log_end_offset <= 10
    check_whole(again, again.log_end_offset)


def test_a_torn_tail_is_cut_at_every_byte() -> None:
    machine = Machine()
    log = open_log(machine.disk)
    append(log, b"first")
    whole = log.size_bytes
    append(log, b"second")
    data = machine.disk.read_file(f"{FIRST}.log")
    for end in range(whole, len(data)):
        for torn in (data[:end], data[:end] + bytes(len(data) - end), data[:end] + b"\xff" * (len(data) - end)):
            if torn == data:
                continue  # The last byte is a zero.
            machine.crash("process")
            machine.disk.write_file(f"{FIRST}.log", torn)
            again = open_log(machine.disk)
            assert values(read_all(again)) == [b"first"]
            assert again.size_bytes == machine.disk.file_size(f"{FIRST}.log") == whole
            assert append(again, b"third").base_offset == 1


def test_zeros_behind_the_last_batch_are_cut() -> None:
    machine = Machine()
    filled(machine, 3)
    machine.disk.write_file(f"{FIRST}.log", machine.disk.read_file(f"{FIRST}.log") + bytes(5000))
    machine.crash("process")
    check_whole(open_log(machine.disk, SMALL), 3)


def test_damage_in_the_middle_ends_the_log_there(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    log = filled(machine)
    damaged = log.segments[1].base_offset
    path = log.segments[1].path
    machine.crash("process")
    data = bytearray(machine.disk.read_file(path))
    data[-1] ^= 1
    machine.disk.write_file(path, bytes(data))
    with caplog.at_level(logging.WARNING):
        again = open_log(machine.disk, SMALL)
    assert [segment.base_offset for segment in again.segments] == [0, damaged]
    assert "Cutting" in caplog.text
    check_whole(again, again.log_end_offset)


def test_flushed_segments_are_not_read_again() -> None:
    machine = Machine()
    log = filled(machine)
    path, recovery_point = log.segments[0].path, log.segments[1].base_offset + 1
    machine.crash("process")
    data = bytearray(machine.disk.read_file(path))
    data[-1] ^= 1
    machine.disk.write_file(path, bytes(data))
    again = open_log(machine.disk, SMALL, recovery_point=recovery_point)
    assert again.log_end_offset == 10, "what was synced is not doubted at every start: readers check the checksum"


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        (suffix, damage)
        for suffix in ("index", "timeindex", "txnindex")
        for damage in ("missing", "odd size", "garbage", "descending", "beyond the log")
        if (suffix, damage) != ("txnindex", "missing")  # There is none to lose: nothing was aborted.
    ],
)
@pytest.mark.parametrize("number", [0, 1, -1])
def test_damaged_indexes_are_rebuilt(suffix: str, damage: str, number: int, caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    log = filled(machine)
    path = f"{DIRECTORY}/{log.segments[number].base_offset:020d}.{suffix}"
    log.close()
    machine.crash("process")
    if damage == "missing":
        machine.disk.unlink(path)
    else:
        machine.disk.write_file(path, _damaged(suffix, damage))
    with caplog.at_level(logging.WARNING):
        again = open_log(machine.disk, SMALL, clean=True, recovery_point=10)
    assert len([line for line in caplog.messages if "Rebuilding" in line]) == 1
    assert again.aborted_transactions(0, 10) == []
    check_whole(again, 10)


def _damaged(suffix: str, damage: str) -> bytes:
    entry = {"index": ">ii", "timeindex": ">qi", "txnindex": ">hqqqq"}[suffix]
    width = entry.count("q") + entry.count("i") + entry.count("h")
    match damage:
        case "odd size":
            return bytes(struct.calcsize(entry) + 1)
        case "garbage":
            return b"\xfe" * struct.calcsize(entry) * 3
        case "descending" if suffix != "txnindex":
            return struct.pack(entry, 5, 5) + struct.pack(entry, 4, 4)
        case "beyond the log" if suffix == "index":
            return struct.pack(entry, 1, 1 << 20)
        case _:
            return struct.pack(entry, *[-1] * width)


def test_an_empty_time_index_is_noticed() -> None:
    machine = Machine()
    filled(machine).close()
    machine.disk.write_file(f"{FIRST}.timeindex", b"")
    check_whole(open_log(machine.disk, SMALL, clean=True, recovery_point=10), 10)


@pytest.mark.parametrize("base", [0, 1000, (1 << 31) + 5])
@pytest.mark.parametrize("clean", [False, True])
def test_batches_without_timestamps_are_not_indexed_by_time(base: int, clean: bool) -> None:
    machine = Machine()
    log = open_log(machine.disk, SMALL)
    log.truncate_fully_and_start_at(base)
    for number in range(20):
        append(log, b"%d" % number, timestamp=NO_TIMESTAMP)
    append(log, b"20", timestamp=NOW_MS)
    if clean:
        log.close()
    machine.crash("process")
    again = open_log(machine.disk, SMALL, clean=clean)
    assert len(again.segments) > 2
    assert offsets(read_all(again)) == list(range(base, base + 21))
    found = at_time(again, NOW_MS)
    assert found is not None
    assert found.offset == base + 20
    for segment in again.segments[:-1]:
        assert machine.disk.read_file(segment.path.replace(".log", ".timeindex")) == b""
        assert segment.largest_timestamp() == NO_TIMESTAMP


@pytest.mark.parametrize("number", [0, 2])
def test_a_time_index_that_names_no_offset_is_rebuilt(number: int, caplog: pytest.LogCaptureFixture) -> None:
    """Releases before wrote an entry for batches without timestamps, which led to before the segment."""
    machine = Machine()
    log = open_log(machine.disk, SMALL)
    log.truncate_fully_and_start_at(1000)
    for each in range(20):
        append(log, b"%d" % each, timestamp=NO_TIMESTAMP)
    log.close()
    segment = log.segments[number]
    path = segment.path.replace(".log", ".timeindex")
    machine.disk.write_file(path, struct.pack(">qi", -1, -1 - segment.base_offset))
    again = open_log(machine.disk, SMALL, clean=True, recovery_point=1020)
    assert f"Rebuilding the indexes of {segment.path}" in caplog.text
    assert machine.disk.read_file(path) == b""
    assert offsets(read_all(again)) == list(range(1000, 1020))


def test_closing_again_writes_nothing() -> None:
    machine = Machine()
    filled(machine).close()
    log = open_log(machine.disk, SMALL, clean=True, recovery_point=10)
    changed: list[str] = []
    machine.device.on_change = lambda path, length: changed.append(path)
    log.begin_epoch(LeaderEpoch(9))
    log.close()
    assert changed == []


def test_stale_indexes_after_a_crash_are_not_trusted() -> None:
    machine = Machine()
    filled(machine, 2).close()
    log = open_log(machine.disk, SMALL, clean=True, recovery_point=2)
    for number in range(2, 10):
        append(log, b"%d" % number, timestamp=NOW_MS + number, leader_epoch=number // 4)
    machine.crash("process")
    check_whole(open_log(machine.disk, SMALL, recovery_point=2), 10)


def test_a_clean_mark_that_lies_is_survived() -> None:
    machine = Machine()
    log = filled(machine, 5, LogConfig())
    log.close()
    data = machine.disk.read_file(f"{FIRST}.log")
    machine.disk.write_file(f"{FIRST}.log", data[:-7])
    machine.crash("process")
    check_whole(open_log(machine.disk, clean=True, recovery_point=5), 4)


def test_leftovers_are_tidied() -> None:
    machine = Machine()
    filled(machine, 3, LogConfig()).close()
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000007.log.cleaned",
        "leader-epoch-checkpoint.tmp",
        "00000000000000000009.index",
        "00000000000000000009.timeindex",
        "00000000000000000099.snapshot",
    ):
        machine.disk.write_file(f"{DIRECTORY}/{name}", b"left over")
    log = open_log(machine.disk, clean=True, recovery_point=3)
    assert machine.disk.list(DIRECTORY) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000003.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    check_whole(log, 3)


def test_a_finished_compaction_is_put_in_place() -> None:
    machine = Machine()
    log = filled(machine)
    replaced = [segment.base_offset for segment in log.segments[:2]]
    log.close()
    survivor = bytes(batch_of(b"survivor", base_offset=log.segments[2].base_offset - 1, timestamp=NOW_MS))
    machine.disk.write_file(f"{FIRST}.log.swap", survivor)
    machine.disk.write_file(f"{FIRST}.index.swap", b"")
    machine.disk.write_file(f"{FIRST}.timeindex.swap", b"")
    again = open_log(machine.disk, SMALL, clean=True, recovery_point=10)
    assert replaced[1] not in [segment.base_offset for segment in again.segments]
    assert values(read_all(again))[0] == b"survivor"
    assert offsets(read_all(again)) == list(range(log.segments[2].base_offset - 1, 10))


def test_a_checkpoint_that_starts_a_log_beyond_its_end_is_not_believed() -> None:
    machine = Machine()
    filled(machine, 3)
    machine.crash("process")
    log = open_log(machine.disk, SMALL, log_start_offset=50)
    assert (log.log_start_offset, offsets(read_all(log))) == (0, [0, 1, 2])
    assert append(log, b"x").base_offset == 3


def test_checkpoints_beyond_the_end_are_clamped() -> None:
    machine = Machine()
    filled(machine, 3)
    machine.crash("process")
    log = open_log(machine.disk, SMALL, recovery_point=99, high_watermark=99)
    assert (log.recovery_point, log.high_watermark) == (0, 3), "nobody knows how much of the last segment is synced"


def test_a_lost_epoch_file_is_learnt_from_the_batches() -> None:
    machine = Machine()
    filled(machine)
    machine.crash("process")
    machine.disk.write_file(f"{DIRECTORY}/leader-epoch-checkpoint", b"damaged")
    check_whole(open_log(machine.disk, SMALL), 10)


def test_an_epoch_file_from_before_a_truncation_is_not_believed() -> None:
    """It is replaced without a sync, and not at all on a full disk."""
    machine = Machine()
    log = open_log(machine.disk)
    for number in range(5):
        append(log, b"%d" % number, leader_epoch=1 if number < 2 else 5)
    log.leader_epochs.save(log.log_end_offset)
    stale = machine.disk.read_file(f"{DIRECTORY}/leader-epoch-checkpoint")
    machine.device.capacity = 0
    log.truncate_to(2)
    machine.device.capacity = 1 << 40
    for number in range(2, 6):
        append(log, b"%d" % number, leader_epoch=3 if number < 5 else 6)
    machine.crash("process")
    assert machine.disk.read_file(f"{DIRECTORY}/leader-epoch-checkpoint") == stale
    again = open_log(machine.disk)
    assert again.leader_epochs.entries == [(1, 0), (3, 2), (6, 5)]


def crash_points(prepare: str) -> int:
    """How many changes to the disk an operation makes."""
    machine = Machine()
    log = filled(machine, 3)
    log.advance_high_watermark(3)
    changes = 0

    def count(path: str, length: int) -> None:
        nonlocal changes
        changes += 1

    machine.device.on_change = count
    OPERATIONS[prepare](log)
    return changes


def _roll(log: Log) -> None:
    log.roll(NOW_MS)


def _append_and_roll(log: Log) -> None:
    for number in range(3, 9):
        append(log, b"%d" % number, timestamp=NOW_MS + number, leader_epoch=number // 4)


def _retain(log: Log) -> None:
    log.roll(NOW_MS)
    log.config = LogConfig(retention_ms=0, file_delete_delay_ms=0)
    log.apply_retention(NOW_MS + 100)
    log.purge_deleted(NOW_MS + 100)


def _truncate(log: Log) -> None:
    log.roll(NOW_MS)
    append(log, b"3", timestamp=NOW_MS + 3)
    log.truncate_to(1)


def _close(log: Log) -> None:
    log.close()


OPERATIONS = {"roll": _roll, "append": _append_and_roll, "retain": _retain, "truncate": _truncate, "close": _close}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_crash_between_any_two_changes(operation: str) -> None:
    points = crash_points(operation)
    assert points > 1
    for point in range(points):
        for torn in (0, 1, 1 << 20):
            machine = Machine()
            log = filled(machine, 3)
            log.advance_high_watermark(3)
            left = point

            def strike(path: str, length: int, torn: int = torn) -> int | None:
                nonlocal left
                left -= 1
                return min(torn, length) if left < 0 else None

            machine.device.on_change = strike
            with pytest.raises(Crashed):
                OPERATIONS[operation](log)
            machine.crash("process")
            again = open_log(machine.disk, SMALL)
            found = offsets(read_all(again))
            assert found == list(range(again.log_start_offset, again.log_end_offset))
            if operation in ("roll", "close"):
                assert found == [0, 1, 2]
            elif operation == "append":
                assert found[:3] == [0, 1, 2]
            elif operation == "truncate":
                assert found[:1] == [0]
            append(again, b"more", leader_epoch=99)
            assert values(read_all(again))[-1] == b"more"


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment_bytes", [1 << 20, 400, 250])
def test_the_last_five_batches_of_a_producer_are_known_after_a_start(clean: bool, segment_bytes: int) -> None:
    """A snapshot keeps only the last one, but a producer with five under way sends all of them again."""
    machine = Machine()
    config = LogConfig(segment_bytes=segment_bytes)
    log = open_log(machine.disk, config)
    for sequence in range(8):
        for producer_id in (7, 8):
            value = b"%d" % sequence * 30
            append(log, value, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    if clean:
        log.close()
    again = open_log(machine.disk, config, clean=clean, recovery_point=16 if clean else 0)
    for sequence in range(3, 8):
        value = b"%d" % sequence * 30
        info = append(again, value, producer_id=7, producer_epoch=0, base_sequence=sequence)
        assert (info.duplicate, info.base_offset) == (True, sequence * 2)
    with pytest.raises(KafkaError) as refused:
        append(again, b"2" * 30, producer_id=7, producer_epoch=0, base_sequence=2)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not append(again, b"8", producer_id=7, producer_epoch=0, base_sequence=8).duplicate
