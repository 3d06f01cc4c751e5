"""The metadata log: what was answered survives, what was torn goes, and a snapshot stands for what came before it."""

from __future__ import annotations

import asyncio
import dataclasses
import random

import pytest
from tests.unit.metadata.building import entropy, uuid
from tests.unit.server.metadata_machine import DIRECTORY, ME, SETTINGS, Machine, create_request

from odradek.ids import LeaderEpoch, Offset
from odradek.metadata.bootstrap import FormatRequest, plan_format
from odradek.metadata.image import Image, UnknownRecord
from odradek.metadata.raft.quorum_state import decode_quorum_state
from odradek.metadata.raft.snapshot import read_snapshot
from odradek.metadata.raft.voters import Voter
from odradek.metadata.records import (
    BeginTransactionRecord,
    ConfigRecord,
    FeatureLevelRecord,
    RemoveDelegationTokenRecord,
)
from odradek.protocol.messages.create_topics import CreateTopicsResponse
from odradek.server.quorum.log import BadMetadataLog
from odradek.sim.disk import Keep
from odradek.sim.loop import Deadlock, Life


def names(image: Image) -> list[str]:
    return sorted(image.topics.by_name)


def epoch_in_file(machine: Machine) -> int:
    return decode_quorum_state(machine.world.disk.read_file(f"{DIRECTORY}/quorum-state")).leader_epoch


def test_a_new_log_begins_with_the_bootstrap() -> None:
    machine = Machine()
    image = machine.boot()
    assert image.features.metadata_version == 30
    assert [broker.fenced for broker in image.cluster.brokers.values()] == [False]
    assert image.cluster.brokers[ME.node_id].broker_epoch == 9  # LeaderChange, 7 of the bootstrap, the controller.
    assert epoch_in_file(machine) == machine.quorum.epoch == 1


@pytest.mark.parametrize("keep", ["process", "power"])
@pytest.mark.parametrize("seed", range(8))
def test_what_was_answered_survives_a_crash(keep: Keep, seed: int) -> None:
    machine = Machine(seed)
    machine.boot()
    machine.create("a", "b", partitions=3)
    machine.run(machine.producer_ids())
    before = machine.quorum.image
    machine.crash(keep)
    machine.open()
    assert dataclasses.replace(machine.quorum.image, provenance=before.provenance) == before
    assert machine.quorum.epoch > before.provenance.epoch


def test_every_start_is_a_new_epoch_and_a_new_incarnation() -> None:
    machine = Machine()
    first = machine.boot()
    machine.create("t")
    machine.stop()
    second = machine.boot(clean=True)
    assert (machine.quorum.epoch, epoch_in_file(machine)) == (2, 2)
    before, after = (image.cluster.brokers[ME.node_id] for image in (first, second))
    assert after.broker_epoch > before.broker_epoch
    assert after.incarnation_id != before.incarnation_id
    (partition,) = second.topics.by_name["t"].partitions
    assert (partition.leader, partition.leader_epoch) == (1, 2)  # Nobody led while the broker was down.


@pytest.mark.parametrize("cut", [1, 10, 60, 80])
def test_a_torn_tail_is_cut(cut: int) -> None:
    machine = Machine()
    machine.boot()
    machine.create("kept")
    machine.create("torn")
    machine.crash("process")
    machine.change_file("00000000000000000000.log", lambda content: content[:-cut])
    machine.open()
    assert names(machine.quorum.image) == ["kept"]
    machine.run(machine.join())
    machine.create("after")
    machine.crash("power")
    machine.open()
    assert names(machine.quorum.image) == ["after", "kept"]


@pytest.mark.parametrize("seed", range(20))
def test_a_crash_in_the_middle_of_a_write_takes_all_of_a_request_or_nothing(seed: int) -> None:
    machine = Machine(seed)
    machine.boot()
    machine.create("before")
    draw = random.Random(seed)
    machine.device.on_change = lambda path, length: draw.randrange(length) if path.endswith(".log") else None
    work = machine.loop.create_task(
        machine.controller.create_topics(create_request("x", "y")), context=machine.life.context
    )
    with pytest.raises(Deadlock):
        machine.run(_wait_for(work))  # Its life is over, so it never ends.
    machine.device.on_change = None
    machine.crash("power")
    machine.open()
    assert names(machine.quorum.image) in (["before"], ["before", "x", "y"])


def test_a_snapshot_replaces_the_log_before_it() -> None:
    machine = Machine(settings=dataclasses.replace(SETTINGS, max_bytes_between_snapshots=500))
    machine.boot()
    for number in range(10):
        machine.create(f"t{number}")
    machine.run(machine.quorum.close())
    snapshots = machine.files(".checkpoint")
    assert snapshots
    image = machine.quorum.image
    machine.crash("process")
    machine.open()
    assert dataclasses.replace(machine.quorum.image, provenance=image.provenance) == image


def test_old_snapshots_and_segments_go() -> None:
    settings = dataclasses.replace(
        SETTINGS, segment_bytes=2000, max_bytes_between_snapshots=1000, max_retention_bytes=6000
    )
    machine = Machine(settings=settings)
    machine.boot()
    for number in range(60):
        machine.create(f"topic-{number}")
    assert "00000000000000000000.log" not in machine.files(".log")
    assert len(machine.files(".checkpoint")) <= 4
    machine.stop()
    machine.open()
    assert len(names(machine.quorum.image)) == 60
    machine.crash("power")
    machine.open()
    assert len(names(machine.quorum.image)) == 60


def test_snapshots_by_time() -> None:
    machine = Machine(settings=dataclasses.replace(SETTINGS, max_snapshot_interval_ms=1000))
    machine.boot()
    machine.create("a")
    assert machine.files(".checkpoint") == []
    machine.run(_sleep(2))
    machine.create("b")
    machine.run(_sleep(1))
    (name,) = machine.files(".checkpoint")
    snapshot = read_snapshot(machine.world.disk.read_file(f"{DIRECTORY}/{name}"))
    assert len([record for record in snapshot.records if type(record).__name__ == "TopicRecord"]) == 2


def test_a_damaged_snapshot_is_passed_over_while_the_log_is_whole() -> None:
    machine = Machine()
    machine.boot()
    machine.create("a")
    machine.run(machine.quorum.write_snapshot())
    machine.create("b")
    machine.stop()
    (name,) = _snapshots(machine)
    machine.change_file(name, lambda content: content[:-40])
    machine.open()
    assert names(machine.quorum.image) == ["a", "b"]


def test_without_the_log_before_it_a_damaged_snapshot_stops_the_start() -> None:
    settings = dataclasses.replace(
        SETTINGS, segment_bytes=1000, max_bytes_between_snapshots=1000, max_retention_bytes=1
    )
    machine = Machine(settings=settings)
    machine.boot()
    for number in range(30):
        machine.create(f"topic-{number}")
    machine.stop()
    for name in _snapshots(machine):
        machine.change_file(name, lambda content: content[:100])
    with pytest.raises(BadMetadataLog, match="no snapshot that is whole"):
        machine.open()


def test_a_snapshot_that_was_never_finished_is_removed() -> None:
    machine = Machine()
    machine.boot()
    machine.crash("process")
    part = f"{DIRECTORY}/00000000000000000003-0000000001.checkpoint.part"
    machine.device.attach(Life("someone else")).write_file(part, b"half")
    machine.open()
    assert not machine.world.disk.exists(part)


def test_a_transaction_cut_short_is_aborted() -> None:
    machine = Machine()
    machine.boot()
    config = ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1")
    machine.run(machine.quorum.append([[BeginTransactionRecord(name="long"), config]]))
    machine.crash("power")
    machine.open()
    assert machine.quorum.interrupted_transaction
    machine.run(machine.join())
    assert not machine.quorum.interrupted_transaction
    assert not machine.quorum.image.configs.of(2, "t")


def test_a_cluster_from_the_future_is_refused() -> None:
    machine = Machine()
    machine.boot()
    machine.run(machine.quorum.append([[FeatureLevelRecord(name="metadata.version", feature_level=31)]]))
    machine.crash("power")
    with pytest.raises(BadMetadataLog, match=r"metadata\.version 31, and this node knows none above 30"):
        machine.open()


def test_a_record_that_is_not_served_is_named() -> None:
    machine = Machine()
    machine.boot()
    token = RemoveDelegationTokenRecord(token_id="t")
    with pytest.raises(UnknownRecord):
        machine.run(machine.quorum.append([[token]]))
    machine.crash("power")
    with pytest.raises(BadMetadataLog, match="does not support the metadata record RemoveDelegationTokenRecord"):
        machine.open()


def test_a_damaged_quorum_state_is_not_guessed_at() -> None:
    machine = Machine()
    machine.boot()
    machine.stop()
    machine.change_file("quorum-state", lambda content: b"{")
    with pytest.raises(BadMetadataLog, match="quorum-state cannot be read"):
        machine.open()


def format_standalone(machine: Machine, *voters: Voter) -> None:
    request = FormatRequest(
        cluster_id="c",
        node_id=ME.node_id,
        log_dirs=("/data",),
        metadata_log_dir="/data",
        controller_listener_name="CONTROLLER",
        features={},
        release_version=None,
        initial_controllers=voters,
    )
    disk = machine.device.attach(Life("format"))
    for directory in plan_format(request, unformatted=["/data"], entropy=entropy(), now_ms=0).directories:
        for name, content in directory.files:
            path = f"/data/{name}"
            disk.make_directory(path.rpartition("/")[0])
            disk.write_file(path, content)


def test_a_standalone_quorum_keeps_its_voters_in_log_and_snapshots() -> None:
    machine = Machine()
    format_standalone(machine, ME)
    machine.boot()
    assert machine.quorum.kraft_version == 1
    machine.create("t")
    machine.run(machine.quorum.write_snapshot())
    newest = machine.files(".checkpoint")[-1]
    snapshot = read_snapshot(machine.world.disk.read_file(f"{DIRECTORY}/{newest}"))
    assert (snapshot.kraft_version, snapshot.voters) == (1, (ME,))
    machine.stop()
    moved = dataclasses.replace(ME, port=9999)
    machine.open(me=moved)
    assert machine.quorum.kraft_version == 1
    assert names(machine.quorum.image) == ["t"]
    assert b'"data_version":1' in machine.world.disk.read_file(f"{DIRECTORY}/quorum-state")


def test_one_of_two_voters_does_not_lead_alone() -> None:
    machine = Machine()
    format_standalone(machine, ME, Voter(type(ME.node_id)(2), "other", 9093, ME.directory_id))
    machine.open()
    machine.run(_sleep(5))
    assert not machine.quorum.is_active
    assert machine.quorum.leader_id == -1
    machine.run(machine.quorum.close())


def test_the_only_voter_is_another_directory() -> None:
    machine = Machine()
    format_standalone(machine, Voter(ME.node_id, "localhost", 9093, uuid(999)))
    with pytest.raises(BadMetadataLog, match="another directory than this one"):
        machine.open()


def test_a_commit_is_told_once_with_what_it_changed() -> None:
    machine = Machine()
    machine.boot()
    machine.committed.clear()
    machine.create("t", partitions=2)
    ((image, changes),) = machine.committed
    assert [each.partitions for each in changes.topics.created] == [(0, 1)]
    assert image is machine.quorum.image
    assert image.provenance.offset == machine.quorum.next_offset - 1 == Offset(image.provenance.offset)
    assert image.provenance.epoch == LeaderEpoch(1)


def _snapshots(machine: Machine) -> list[str]:
    disk = machine.device.attach(Life("someone else"))
    return [name for name in disk.list(DIRECTORY) if name.endswith(".checkpoint")]


async def _wait_for(work: asyncio.Task[CreateTopicsResponse]) -> None:
    await work


async def _sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)
