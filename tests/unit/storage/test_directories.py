"""One of `log.dirs`, through starts, stops, deletions and failures."""

from __future__ import annotations

import json

import pytest
from tests.unit.storage.worlds import NOW_MS, TOPIC_ID, Machine, append, read_all, values

from odradek.ids import Uuid
from odradek.sim.disk import Keep
from odradek.storage.config import LogConfig
from odradek.storage.directories import LogDirectory, parse_directory_name
from odradek.storage.log import Log

ANOTHER_ID = Uuid(b"another topic id")
CONFIG = LogConfig(file_delete_delay_ms=1000)


class Numbers:
    """Entropy that counts."""

    def __init__(self) -> None:
        self.count = 0

    def random_bytes(self, count: int) -> bytes:
        self.count += 1
        return self.count.to_bytes(count)

    def below(self, bound: int) -> int:
        return 0


def look(machine: Machine) -> LogDirectory:
    return LogDirectory(machine.disk, "/data", Uuid(bytes(16)), Numbers())


def open_log(directory: LogDirectory, topic: str = "t", partition: int = 0, topic_id: Uuid = TOPIC_ID) -> Log:
    return directory.open_log(topic, partition, topic_id=topic_id, config=CONFIG, now_ms=NOW_MS)


def test_a_clean_stop_and_start() -> None:
    machine = Machine()
    directory = look(machine)
    assert not directory.was_clean
    for partition in (10, 2):
        log = open_log(directory, partition=partition)
        append(log, b"%d" % partition)
        append(log, b"more")
        log.advance_high_watermark(1)
    log.delete_records_before(1)
    directory.close()
    directory.mark_clean_shutdown(broker_epoch=77)
    assert json.loads(machine.disk.read_file("/data/.kafka_cleanshutdown")) == {"version": 0, "brokerEpoch": 77}
    assert machine.disk.read_file("/data/recovery-point-offset-checkpoint") == b"0\n2\nt 2 2\nt 10 2\n"
    assert machine.disk.read_file("/data/log-start-offset-checkpoint") == b"0\n1\nt 2 1\n"
    assert machine.disk.read_file("/data/replication-offset-checkpoint") == b"0\n2\nt 2 1\nt 10 1\n"
    machine.crash("power")
    directory = look(machine)
    assert directory.was_clean
    assert not machine.disk.exists("/data/.kafka_cleanshutdown"), "a crash from now on must not find it"
    assert directory.partitions == [("t", 2), ("t", 10)]
    assert directory.holds("t", 2)
    assert not directory.holds("t", 3)
    assert directory.partition_count == 2
    log = open_log(directory, partition=2)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.recovery_point) == (1, 2, 1, 2)
    assert values(read_all(open_log(directory, partition=10))) == [b"10", b"more"]


def test_checkpoints_are_written_when_something_changed() -> None:
    machine = Machine()
    directory = look(machine)
    log = open_log(directory)
    append(log, b"x")
    log.advance_high_watermark(1)
    directory.checkpoint_high_watermarks()
    assert machine.disk.read_file("/data/replication-offset-checkpoint") == b"0\n1\nt 0 1\n"
    machine.disk.unlink("/data/replication-offset-checkpoint")
    directory.checkpoint_high_watermarks()
    assert not machine.disk.exists("/data/replication-offset-checkpoint")
    directory.checkpoint_recovery_points()
    assert machine.disk.read_file("/data/recovery-point-offset-checkpoint") == b"0\n1\nt 0 0\n"
    log.delete_records_before(1)
    directory.checkpoint_log_starts()
    assert machine.disk.read_file("/data/log-start-offset-checkpoint") == b"0\n1\nt 0 1\n"


def test_a_deleted_log_leaves_in_two_steps() -> None:
    machine = Machine()
    directory = look(machine)
    log = open_log(directory)
    append(log, b"x")
    directory.delete_log(log, now_ms=NOW_MS)
    assert not directory.holds("t", 0)
    renamed = "t-0.00000000000000000000000000000001-delete"
    assert machine.disk.list("/data") == [renamed]
    assert values(read_all(log)) == [b"x"], "whoever reads it can finish"
    append(open_log(directory), b"a new topic of this name")
    assert directory.purge_deleted(NOW_MS + 999) == NOW_MS + 1000
    assert directory.purge_deleted(NOW_MS + 1000) is None
    assert machine.disk.list("/data") == ["t-0"]


def test_deletion_goes_on_after_a_crash() -> None:
    machine = Machine()
    directory = look(machine)
    directory.delete_log(open_log(directory), now_ms=NOW_MS)
    machine.crash("process")
    machine.disk.make_directory("/data/u-1.00000000000000000000000000000009-stray")
    machine.disk.make_directory("/data/v-1.00000000000000000000000000000009-future")
    directory = look(machine)
    assert directory.partitions == []
    directory.purge_deleted(NOW_MS)
    assert machine.disk.list("/data") == [
        "u-1.00000000000000000000000000000009-stray",
        "v-1.00000000000000000000000000000009-future",
    ]


def test_another_topics_directory_is_set_aside() -> None:
    machine = Machine()
    append(open_log(look(machine)), b"old")
    machine.crash("process")
    directory = look(machine)
    assert directory.topic_id_of("t", 0) == TOPIC_ID
    log = open_log(directory, topic_id=ANOTHER_ID)
    assert log.log_end_offset == 0
    assert machine.disk.list("/data") == ["t-0", "t-0.00000000000000000000000000000001-stray"]
    directory.purge_deleted(NOW_MS)
    assert machine.disk.list("/data") == ["t-0", "t-0.00000000000000000000000000000001-stray"]


def trimmed(machine: Machine, *partitions: int) -> LogDirectory:
    """After a clean stop: logs of ten records each, the first eight of which were deleted."""
    directory = look(machine)
    for partition in partitions:
        log = open_log(directory, partition=partition)
        append(log, *[b"%d" % number for number in range(10)])
        log.advance_high_watermark(10)
        log.delete_records_before(8)
    directory.close()
    directory.mark_clean_shutdown()
    return look(machine)


@pytest.mark.parametrize("deleted_while_away", [False, True])
@pytest.mark.parametrize("keep", ["process", "power"])
@pytest.mark.parametrize("count", [3, 12])
def test_a_topic_made_anew_inherits_no_checkpoint(keep: Keep, count: int, deleted_while_away: bool) -> None:
    """They go by name: the predecessor's start would cut off the new topic's records."""
    machine = Machine()
    directory = trimmed(machine, 0)
    if not deleted_while_away:
        directory.delete_log(open_log(directory), now_ms=NOW_MS)
    log = open_log(directory, topic_id=ANOTHER_ID)
    for number in range(count):
        append(log, b"%d" % number)
    work = log.flush_work()
    work()
    machine.crash(keep)
    directory = look(machine)
    damage: list[None] = []
    directory.on_damage = lambda: damage.append(None)
    again = open_log(directory, topic_id=ANOTHER_ID)
    assert (again.log_start_offset, again.log_end_offset, again.recovery_point) == (0, count, 0)
    assert not damage


def test_checkpoints_keep_what_is_said_of_others_and_of_the_unopened() -> None:
    machine = Machine()
    directory = trimmed(machine, 0, 1, 2)
    directory.delete_log(open_log(directory, partition=0), now_ms=NOW_MS)
    open_log(directory, partition=0, topic_id=ANOTHER_ID)
    assert machine.disk.read_file("/data/log-start-offset-checkpoint") == b"0\n2\nt 1 8\nt 2 8\n"
    open_log(directory, partition=1)
    directory.checkpoint_log_starts()
    directory.checkpoint_recovery_points()
    directory.checkpoint_high_watermarks()
    machine.crash("process")
    log = open_log(look(machine), partition=2)
    assert (log.log_start_offset, log.recovery_point, log.high_watermark) == (8, 10, 10)


def test_many_partitions_made_anew_pay_for_it_once() -> None:
    machine = Machine()
    directory = trimmed(machine, *range(5))
    for partition in range(5):
        directory.delete_log(open_log(directory, partition=partition), now_ms=NOW_MS)
    open_log(directory, partition=3, topic_id=ANOTHER_ID)
    replaced: list[str] = []
    machine.device.on_change = lambda path, length: replaced.append(path) if "checkpoint" in path else None
    for partition in (0, 1, 2, 4):
        open_log(directory, partition=partition, topic_id=ANOTHER_ID)
    assert not replaced


def test_what_an_earlier_release_has_left_of_a_predecessor_is_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    append(open_log(look(machine)), b"new")
    machine.crash("process")
    machine.disk.write_file("/data/log-start-offset-checkpoint", b"0\n1\nt 0 400\n")
    log = open_log(look(machine))
    assert (log.log_start_offset, values(read_all(log))) == (0, [b"new"])
    assert "holds offsets 0 to 1, and the checkpoint says that it starts at 400" in caplog.text


@pytest.mark.parametrize(("keep", "seed"), [("process", 0), *(("power", seed) for seed in range(20))])
def test_a_recovery_point_from_before_a_truncation_is_not_trusted(keep: Keep, seed: int) -> None:
    """It would have segments trusted that nobody has read or synced since, and pass over the epochs in them."""
    machine = Machine(seed)
    directory = look(machine)
    log = open_log(directory)
    for _ in range(100):
        append(log, b"old")
    directory.close()
    log = open_log(look(machine))
    log.truncate_to(10)
    for number in range(10, 70):
        append(log, b"new", leader_epoch=1 + (number - 10) // 20)
        if number % 25 == 24:
            log.roll(NOW_MS)
    machine.crash(keep)
    again = open_log(look(machine))
    end = again.log_end_offset
    found = values(read_all(again))
    if found == [b"old"] * 100:  # The power loss has undone the truncation, and all that came after it.
        assert (keep, again.leader_epochs.entries) == ("power", [(0, 0)])
    else:
        assert found == [b"old"] * 10 + [b"new"] * (end - 10)
        assert again.leader_epochs.entries == [each for each in ((0, 0), (1, 10), (2, 30), (3, 50)) if each[1] < end]
        assert keep == "power" or end == 70


def test_a_clean_stop_syncs_what_only_a_recovery_point_from_before_a_truncation_vouches_for() -> None:
    machine = Machine()
    directory = look(machine)
    append(open_log(directory), *[b"old"] * 100)
    directory.close()
    log = open_log(look(machine))
    log.truncate_to(0)
    append(log, *[b"new"] * 60)
    machine.crash("process")
    directory = look(machine)
    open_log(directory)
    directory.close()
    directory.mark_clean_shutdown()
    machine.crash("power")
    assert values(read_all(open_log(look(machine)))) == [b"new"] * 60


@pytest.mark.parametrize("keep", ["process", "power"])
def test_a_log_begun_anew_below_its_start_keeps_its_records(keep: Keep) -> None:
    """An unclean election may bring a leader whose log starts, and ends, before this one does."""
    machine = Machine()
    directory = trimmed(machine, 0)
    log = open_log(directory)
    log.truncate_fully_and_start_at(2)
    for number in range(12):
        append(log, b"%d" % number)
    log.flush_work()()
    machine.crash(keep)
    again = open_log(look(machine))
    assert (again.log_start_offset, again.log_end_offset) == (2, 14)


def test_a_log_is_not_begun_anew_where_its_start_cannot_be_kept() -> None:
    machine = Machine()
    log = open_log(trimmed(machine, 0))
    machine.device.capacity = machine.device.used
    with pytest.raises(OSError, match="space"):
        log.truncate_fully_and_start_at(2)
    assert (log.log_start_offset, log.log_end_offset) == (8, 10)


@pytest.mark.parametrize("content", [None, b"version: 0\ntopic", b"version: 0\ntopic_id: \xb3\xc0"])
def test_records_that_do_not_say_whose_they_are_are_set_aside(content: bytes | None) -> None:
    """They may be a predecessor's, whose topic had the same name (and are served as the new one's otherwise)."""
    machine = Machine()
    directory = look(machine)
    append(open_log(directory), b"whose?")
    open_log(directory, partition=1)
    for partition in (0, 1):
        path = f"/data/t-{partition}/partition.metadata"
        machine.disk.unlink(path)
        if content is not None:
            machine.disk.write_file(path, content)
    directory = look(machine)
    damage: list[bool] = []
    directory.on_damage = lambda: damage.append(True)
    assert values(read_all(open_log(directory, topic_id=ANOTHER_ID))) == []
    assert damage == [True]
    assert [name for name in machine.disk.list("/data") if name.endswith("-stray")] != []
    open_log(directory, partition=1, topic_id=ANOTHER_ID)
    assert damage == [True], "one without records is nobody's yet"
    assert directory.topic_id_of("t", 1) == ANOTHER_ID


def test_whose_a_log_is_is_synced_soon_after_its_first_record() -> None:
    machine = Machine()
    log = open_log(look(machine))
    assert not log.needs_flush(NOW_MS)
    append(log, b"first")
    assert log.needs_flush(NOW_MS)
    work = log.flush_work()
    work()
    log.flushed(work.offset)
    append(log, b"second")
    assert not log.needs_flush(NOW_MS)
    machine.crash("power")
    assert look(machine).topic_id_of("t", 0) == TOPIC_ID


def test_long_names_stay_within_the_file_systems_limit() -> None:
    directory = look(Machine())
    log = open_log(directory, topic="x" * 249)
    directory.delete_log(log, now_ms=NOW_MS)
    assert len(log.directory.rpartition("/")[2]) == 255
    assert log.directory.endswith("-delete")


def test_a_failed_directory_is_left_as_it_is() -> None:
    machine = Machine()
    directory = look(machine)
    log = open_log(directory)
    append(log, b"x")
    directory.go_offline()
    assert not directory.online
    before = machine.disk.list("/data")
    directory.close()
    directory.mark_clean_shutdown()
    assert machine.disk.list("/data") == before == ["t-0"]


def test_an_unreadable_checkpoint_costs_time_only(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    directory = look(machine)
    append(open_log(directory), b"x")
    directory.close()
    directory.mark_clean_shutdown()
    for name in ("recovery-point", "log-start", "replication"):
        machine.disk.write_file(f"/data/{name}-offset-checkpoint", b"damaged")
    assert values(read_all(open_log(look(machine)))) == [b"x"]
    assert len(caplog.messages) == 3


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("t-0", ("t", 0)),
        ("a-b-12", ("a-b", 12)),
        ("t-", None),
        ("-1", None),
        ("t", None),
        ("t-x", None),
        ("t-\u0663", None),
        ("meta.properties", None),
        ("__cluster_metadata-0", ("__cluster_metadata", 0)),
    ],
)
def test_directory_names(name: str, parsed: tuple[str, int] | None) -> None:
    assert parse_directory_name(name) == parsed


def test_the_metadata_log_is_not_ours() -> None:
    machine = Machine()
    machine.disk.make_directory("/data/__cluster_metadata-0")
    assert look(machine).partitions == []
