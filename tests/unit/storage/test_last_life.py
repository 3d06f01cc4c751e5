"""Whose logs a directory holds after its process was killed, and after the power was lost; and what is damage."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import pytest
from tests.unit.storage.test_directories import CONFIG, look, open_log
from tests.unit.storage.worlds import NOW_MS, Machine, append

from odradek.ids import Uuid, uuid_text
from odradek.sim.loop import Crashed
from odradek.storage.last_life import NOBODY, LastLife, common_life

MARK = "/data/.odradek_running"
CLEAN = "/data/.kafka_cleanshutdown"
FIRST_LOG = "/data/t-0/00000000000000000000.log"
ONE, TWO, THREE = (Uuid(bytes([number]) * 16) for number in (1, 2, 3))


def crash_at_change(machine: Machine, number: int) -> None:
    """The disk's change of that number, counted from now, is not made any more."""
    changes = itertools.count(1)
    machine.device.on_change = lambda path, length: 0 if next(changes) == number else None


def test_a_killed_process_loses_nothing_and_a_power_loss_may() -> None:
    machine = Machine()
    look(machine).mark_running(LastLife(7))
    machine.crash("process")
    assert look(machine).last_life == LastLife(7)
    assert not look(machine).was_clean, "its logs are looked through all the same"
    machine.device.settle()
    machine.crash("power")
    assert look(machine).last_life == NOBODY
    assert not machine.disk.exists(MARK), "a disk that comes back to where it was must not bring it with it"


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"7", b'{"version":0,"brokerEpoch":7,"attempts":[]}', b'{"bootId":"disk boot 1"}']
    + [b'{"bootId":"disk boot 1","brokerEpoch":7,"attempts":%s}' % attempts for attempts in (b"7", b"[7]", b'["x"]')],
)
def test_a_mark_that_cannot_be_read_is_nobodys(content: bytes) -> None:
    machine = Machine()
    assert machine.disk.boot_id() == "disk boot 1"
    machine.disk.write_file(MARK, content)
    assert look(machine).last_life == NOBODY
    assert not machine.disk.exists(MARK)


def test_where_nobody_tells_the_boot_nothing_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    monkeypatch.setattr("odradek.sim.disk.SimulatedDisk.boot_id", lambda self: "")
    look(machine).mark_running(LastLife(7))
    assert not machine.disk.exists(MARK)
    machine.disk.write_file(MARK, json.dumps({"brokerEpoch": 7, "bootId": "", "attempts": []}).encode())
    assert look(machine).last_life == NOBODY


def test_a_clean_stop_takes_over_and_a_start_takes_it_back() -> None:
    machine = Machine()
    directory = look(machine)
    directory.mark_running(LastLife(7))
    directory.close()
    directory.mark_clean_shutdown(broker_epoch=7)
    assert not machine.disk.exists(MARK)
    machine.crash("power")
    assert look(machine).last_life == LastLife(7)
    machine.crash("process")
    directory = look(machine)
    assert (directory.was_clean, directory.last_life) == (False, LastLife(7)), "killed before it could register"
    machine.crash("power")
    assert look(machine).last_life == NOBODY


def test_a_crash_at_any_point_of_a_clean_stop_and_the_next_start_loses_nothing() -> None:
    for struck_at in range(1, 40):
        machine = Machine()
        directory = look(machine)
        directory.mark_running(LastLife(7))
        append(open_log(directory), b"x")
        crash_at_change(machine, struck_at)
        try:
            directory.close()
            directory.mark_clean_shutdown(broker_epoch=7)
            look(machine)
        except Crashed:
            machine.crash("process")
            assert look(machine).last_life == LastLife(7), f"struck at change {struck_at}"
        else:
            assert struck_at > 5, "the marks alone are more changes than that"
            return
    pytest.fail("a stop and a start take fewer changes than that")


def test_no_room_for_the_mark_is_no_reason_not_to_start() -> None:
    machine = Machine()
    look(machine).mark_clean_shutdown(broker_epoch=7)
    machine.device.capacity = machine.device.used
    assert look(machine).last_life == LastLife(7)
    machine.crash("process")
    assert look(machine).last_life == NOBODY


def test_a_directory_that_is_doubted_is_nobodys() -> None:
    machine = Machine()
    directory = look(machine)
    directory.mark_running(LastLife(7))
    directory.doubt()
    directory.doubt()
    machine.crash("process")
    assert look(machine).last_life == NOBODY


def test_registrations_of_which_nobody_heard_are_remembered() -> None:
    machine = Machine()
    life = LastLife(7).attempting(ONE).attempting(TWO)
    look(machine).mark_running(life)
    assert json.loads(machine.disk.read_file(MARK)) == {
        "version": 0,
        "brokerEpoch": 7,
        "bootId": "disk boot 1",
        "attempts": [uuid_text(ONE), uuid_text(TWO)],
    }
    machine.crash("process")
    assert look(machine).last_life == life
    assert life.once_known(TWO, 9).broker_epoch == 9
    assert life.once_known(THREE, 9).broker_epoch == 7
    many = life
    for _ in range(100):
        many = many.attempting(THREE)
    assert len(many.attempts) == 16


@pytest.mark.parametrize(
    ("lives", "common"),
    [
        ([], NOBODY),
        ([LastLife(7), LastLife(7)], LastLife(7)),
        ([LastLife(7), LastLife(8)], NOBODY),
        ([LastLife(7), NOBODY], NOBODY),
        ([LastLife(7, (ONE,)), LastLife(7, (ONE, TWO))], LastLife(7, (ONE, TWO))),
        ([LastLife(7, (ONE,)).once_known(ONE, 9), LastLife(9).once_known(ONE, 9)], LastLife(9, (ONE,))),
    ],
)
def test_all_directories_must_be_the_same_brokers(lives: list[LastLife], common: LastLife) -> None:
    assert common_life(lives) == common


# What is damage, and what a kill leaves.


def damages(machine: Machine) -> int:
    """How often the next start tells of damage."""
    told: list[None] = []
    directory = look(machine)
    directory.on_damage = lambda: told.append(None)
    open_log(directory)
    return len(told)


def cut(machine: Machine, count: int) -> None:
    machine.disk.open(FIRST_LOG).truncate(machine.disk.file_size(FIRST_LOG) - count)


def scribble(machine: Machine, position: int) -> None:
    file = machine.disk.open(FIRST_LOG)
    (byte,) = file.read(position, 1)
    file.write(bytes([byte ^ 0xFF]), position)


def add_zeros(machine: Machine) -> None:
    machine.disk.open(FIRST_LOG).write(bytes(100), machine.disk.file_size(FIRST_LOG))


def remove(machine: Machine) -> None:
    machine.disk.remove_directory("/data/t-0")


def nothing(machine: Machine) -> None:
    pass


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (nothing, 0),
        (lambda machine: cut(machine, 1), 0),  # A write that a kill has cut.
        (lambda machine: cut(machine, 60), 0),
        (lambda machine: scribble(machine, 100), 2),  # Also the watermark is beyond what is left.
        (lambda machine: scribble(machine, machine.disk.file_size(FIRST_LOG) - 1), 1),
        (add_zeros, 1),
        (lambda machine: cut(machine, 150), 1),  # The second batch is gone, below the watermark.
        (remove, 1),
    ],
    ids=["none", "torn", "torn-header", "scribbled", "scribbled-last", "zeros", "short", "gone"],
)
def test_damage_is_more_than_a_torn_tail(harm: Callable[[Machine], None], told: int) -> None:
    machine = Machine()
    directory = look(machine)
    log = open_log(directory)
    for number in range(3):
        append(log, b"%d" % number)
    log.advance_high_watermark(2)
    directory.checkpoint_high_watermarks()
    machine.crash("process")
    harm(machine)
    assert damages(machine) == told


def test_a_hole_between_segments_is_damage() -> None:
    machine = Machine()
    log = open_log(look(machine))
    for number in range(3):
        append(log, b"%d" % number)
        log.roll(NOW_MS)
    machine.crash("process")
    machine.disk.unlink("/data/t-0/00000000000000000001.log")
    assert damages(machine) == 1


def test_a_kill_in_the_middle_of_a_truncation_leaves_no_hole() -> None:
    for struck_at in range(1, 60):
        machine = Machine()
        log = open_log(look(machine))
        for number in range(5):
            append(log, b"%d" % number)
            log.roll(NOW_MS)
        crash_at_change(machine, struck_at)
        try:
            log.truncate_to(1)
        except Crashed:
            machine.crash("process")
            assert damages(machine) == 0, f"struck at change {struck_at}"
        else:
            assert struck_at > 5
            return
    pytest.fail("a truncation takes fewer changes than that")


@pytest.mark.parametrize("how", ["deleted", "another topic"])
def test_a_topic_that_was_deleted_is_not_missed(how: str) -> None:
    machine = Machine()
    directory = look(machine)
    log = open_log(directory)
    append(log, b"x")
    log.advance_high_watermark(1)
    directory.checkpoint_high_watermarks()
    if how == "deleted":
        directory.delete_log(log, now_ms=NOW_MS)
    machine.crash("process")
    told: list[None] = []
    directory = look(machine)
    directory.on_damage = lambda: told.append(None)
    directory.open_log("t", 0, topic_id=Uuid(b"another topic id"), config=CONFIG, now_ms=NOW_MS)
    assert told == []
