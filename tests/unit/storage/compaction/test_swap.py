"""The result of a cleaning takes the place of what it was made from: whole, or not at all."""

from __future__ import annotations

import errno

import pytest
from tests.unit.storage.compaction.worlds import COMPACTED, Found, begin, committed, put, settle, table
from tests.unit.storage.transactions import end
from tests.unit.storage.worlds import DIRECTORY, NOW_MS, Machine, content, open_log

from odradek.sim.disk import Keep
from odradek.sim.loop import Crashed
from odradek.storage.log import Log
from odradek.values import replace


def filled(machine: Machine) -> Log:
    """A log with keys that came several times, a transaction that was aborted and one that was not."""
    log = open_log(machine.disk, COMPACTED)
    for number in range(8):
        put(log, (b"k%d" % (number % 3), b"v%d" % number))
    put(log, (b"k0", b"aborted"), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    end(log, commit=False, producer=1)
    put(log, (b"k1", b"committed"), producer_id=1, producer_epoch=0, base_sequence=1, transactional=True)
    end(log, commit=True, producer=1)
    put(log, (b"k2", None))
    log.roll(NOW_MS)
    put(log, (b"active", b"1"))
    settle(log)
    return log


def run(log: Log, machine: Machine) -> bool:
    """A round to its end; whether all of it was put in place."""
    cleaning_round, slices = begin(log, machine.disk)
    outcomes: list[bool] = []
    for done in slices:
        if done.group is not None:
            outcomes.append(cleaning_round.replace(machine.disk, done.group, NOW_MS))
        if done.round is not None:
            log.cleaned_offset = done.round.end_offset
    return bool(outcomes) and all(outcomes)


def names(machine: Machine) -> list[str]:
    return machine.disk.list(DIRECTORY)


def is_part_of(some: list[Found], all_of_them: list[Found]) -> bool:
    rest = iter(all_of_them)
    return all(each in rest for each in some)


def test_a_reader_under_way_can_finish_and_the_old_files_go_later() -> None:
    machine = Machine()
    log = filled(machine)
    reading = log.read(0, 1 << 20, log.high_watermark, True).records
    before = content(reading)
    old = list(log.segments[:-1])
    snapshots = [name for name in names(machine) if name.endswith(".snapshot")]
    assert len(snapshots) >= len(old)
    assert run(log, machine)
    assert content(reading) == before
    assert log.size_bytes == sum(segment.size for segment in log.segments)
    assert log.segments[0] is not old[0]
    assert any(name.endswith(".log.deleted") for name in names(machine))
    log.purge_deleted(NOW_MS + 10)
    bases = {f"{segment.base_offset:020d}" for segment in log.segments}
    assert {name.partition(".")[0] for name in names(machine)} - bases == {"partition", "leader-epoch-checkpoint"}
    assert not [name for name in names(machine) if name.endswith((".deleted", ".swap", ".cleaned"))]


def test_a_log_that_is_read_on_its_watermark_goes_on_after_a_swap() -> None:
    machine = Machine()
    log = filled(machine)
    log.advance_high_watermark(log.log_end_offset)
    expected = table(committed(log))
    assert run(log, machine)
    assert table(committed(log)) == expected
    put(log, (b"after", b"1"))
    settle(log)
    assert table(committed(log)) == {**expected, b"after": b"1"}


@pytest.mark.parametrize("keep", ["process", "power"])
@pytest.mark.parametrize("seed", range(3))
def test_a_crash_between_any_two_steps_leaves_the_old_log_or_the_new_one(keep: Keep, seed: int) -> None:
    step = 0
    finished = False
    while not finished:
        machine = Machine(seed)
        log = filled(machine)
        log.leader_epochs.save(log.log_end_offset)
        before = committed(log)
        expected = table(before)
        left = [step]

        def strike(path: str, length: int, left: list[int] = left) -> int | None:
            left[0] -= 1
            return length // 2 if left[0] < 0 else None

        machine.device.on_change = strike
        try:
            finished = run(log, machine)
        except Crashed:
            finished = False
        machine.crash(keep)
        again = open_log(machine.disk, COMPACTED, recovery_point=log.recovery_point, high_watermark=log.high_watermark)
        after = committed(again)
        assert again.log_end_offset == log.log_end_offset
        assert table(after) == expected, f"after {step} steps"
        assert is_part_of(after, before)
        assert not [name for name in names(machine) if name.endswith((".swap", ".cleaned", ".deleted"))]
        # And the producer goes on where it was, and another cleaning finds nothing amiss.
        put(again, (b"k0", b"more"), producer_id=1, producer_epoch=0, base_sequence=2)
        again.roll(NOW_MS)
        settle(again)
        assert run(again, machine)
        assert table(committed(again)) == {**expected, b"k0": b"more"}
        step += 1
    assert step > 30, "each rename, write and unlink was tried"


def test_an_index_that_a_crash_has_left_of_what_was_replaced_is_not_taken_for_the_new_one() -> None:
    """The transaction index above all: a reader would wait for a marker that is not there any more."""
    machine = Machine()
    log = filled(machine)
    (index,) = (segment for segment in log.segments if segment.txn_index.all())
    stem = index.path.removesuffix(".log")
    stale = machine.disk.read_file(f"{stem}.txnindex")
    survivor = machine.disk.read_file(index.path)
    machine.crash("process")
    machine.disk.rename(f"{stem}.log", f"{stem}.log.deleted")
    machine.disk.write_file(f"{stem}.log.swap", survivor)
    machine.disk.write_file(f"{stem}.txnindex", stale + stale)
    again = open_log(machine.disk, COMPACTED, recovery_point=log.recovery_point)
    assert sum(len(segment.txn_index.all()) for segment in again.segments) == 1


def test_an_error_in_a_swap_leaves_all_as_it_was() -> None:
    failing = 0
    swapped = False
    while not swapped:
        machine = Machine()
        log = filled(machine)
        before = committed(log)
        left = [failing]

        class Failing:
            def __init__(self, machine: Machine) -> None:
                self._disk = machine.disk

            def __getattr__(self, name: str) -> object:
                return getattr(self._disk, name)

            def rename(self, old: str, new: str, left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] == -1:
                    raise OSError(errno.ENOSPC, "No space left on device", new)
                self._disk.rename(old, new)

        log._segments._disk = Failing(machine)  # type: ignore[assignment]
        try:
            swapped = run(log, machine)
        except OSError:
            assert is_part_of(committed(log), before), "some were replaced before, and all others are there"
            assert table(committed(log)) == table(before)
            assert not any(segment.deleted for segment in log.segments)
            log.purge_deleted(NOW_MS + 10)
            assert not [name for name in names(machine) if name.endswith((".swap", ".cleaned", ".deleted"))]
        failing += 1
    assert failing > 10


@pytest.mark.parametrize("what", ["cut", "dropped", "rolled over", "not compacted", "moved", "begun anew"])
def test_a_log_that_has_changed_meanwhile_takes_nothing_in(what: str) -> None:
    machine = Machine()
    log = filled(machine)
    cleaning_round, slices = begin(log, machine.disk)
    cleaned = next(done.group for done in slices if done.group is not None)
    slices.close()
    match what:
        case "cut":
            log.truncate_to(log.log_end_offset - 1)
        case "dropped":
            log.delete_records_before(log.segments[1].base_offset)
            assert log.apply_retention(NOW_MS) == 1
        case "rolled over":
            log.truncate_to(1)
            assert len(log.segments) == 1
        case "not compacted":
            log.config = replace(COMPACTED, cleanup_policy=("delete",))
        case "moved":
            machine.disk.rename(DIRECTORY, f"{DIRECTORY}.x-delete")
            log.moved(f"{DIRECTORY}.x-delete")
        case "begun anew":
            log.truncate_fully_and_start_at(5)
    before = [segment.base_offset for segment in log.segments]
    assert not cleaning_round.replace(machine.disk, cleaned, NOW_MS)
    assert [segment.base_offset for segment in log.segments] == before
    if what != "moved":
        assert not [name for name in names(machine) if name.endswith((".swap", ".cleaned"))]


def test_a_topic_that_is_not_compacted_any_more_keeps_what_a_cleaning_has_left_after_a_crash() -> None:
    """A hole between two segments is a loss there, so a cleaning leaves none, though a segment's last record goes."""
    machine = Machine()
    log = open_log(machine.disk, replace(COMPACTED, segment_bytes=100))
    for number in range(4):
        put(log, (b"k", b"v%d" % number))
    log.roll(NOW_MS)
    settle(log)
    assert run(log, machine)
    machine.crash("process")
    told: list[str] = []
    again = open_log(machine.disk, replace(COMPACTED, cleanup_policy=("delete",)), on_damage=told.append)
    assert table(committed(again)) == {b"k": b"v3"} or again.high_watermark == 0
    assert again.log_end_offset == 4
    assert told == []
