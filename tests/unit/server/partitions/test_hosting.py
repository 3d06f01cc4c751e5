"""Partitions come to a node and go: where they are put, when there is no room, and what is nobody's."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest
from tests.unit.metadata.building import uuid
from tests.unit.server.asking import deletion, fetch, fetched, produce, produced, values, wanted
from tests.unit.server.replica_rig import ReplicaRig
from tests.unit.server.rig import Rig

from odradek.ids import LeaderEpoch, NodeId, Uuid
from odradek.metadata.image.topics import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    PartitionRegistration,
    PartitionsOf,
    TopicChanges,
    TopicImage,
)
from odradek.metadata.records import ConfigRecord, PartitionChangeRecord
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.sim.loop import Life
from odradek.storage.directories import LogDirectory
from odradek.storage.log import Log


def test_new_partitions_go_where_the_fewest_are_and_stay_there() -> None:
    rig = Rig(properties={"log.dirs": "/a,/b"})

    async def test() -> None:
        client = rig.connect()
        await rig.create_topic("t", 5)
        where = {each.index: each.directory.path for each in rig.node.rooms.replicas}
        assert sorted(where.values()) == ["/a", "/a", "/a", "/b", "/b"]
        for index in range(5):
            await client.ask(produce("t", b"%d" % index, partition=index), 9)
        await rig.restart()
        assert {each.index: each.directory.path for each in rig.node.rooms.replicas} == where
        response = await rig.connect().ask(fetch("t", *map(wanted, range(5))), 12)
        assert [values(partition) for partition in fetched(response).values()] == [[b"%d" % i] for i in range(5)]

    rig.run(test)


@pytest.mark.parametrize("room", range(0, 130, 10))
def test_a_partition_for_which_there_was_no_room_is_served_once_there_is(room: int) -> None:
    rig = Rig()

    async def test() -> None:
        client = rig.connect()
        capacity = rig.device.capacity
        open_log = LogDirectory.open_log

        def fill_then_open(directory: LogDirectory, *which: Any, **how: Any) -> Log:
            """The cluster has agreed on the topic; where in making its logs the disk is full depends on the room."""
            if rig.device.capacity == capacity:
                rig.device.capacity = rig.device.used + room
            return open_log(directory, *which, **how)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LogDirectory, "open_log", fill_then_open)
            topic = CreatableTopic(name="t", num_partitions=3, replication_factor=1, assignments=[], configs=[])
            await client.ask(CreateTopicsRequest(topics=[topic]), 7)
            await asyncio.sleep(20)  # Some vain tries.
            missing = [index for index in range(3) if rig.node.rooms.replicas.find("t", index) is None]
            assert missing
            assert rig.node.rooms.replicas.offline_count == len(missing)
            for index in missing:
                refused = produced(await client.ask(produce("t", b"x", partition=index), 9))
                assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        rig.device.capacity = capacity
        await asyncio.sleep(6)
        assert rig.node.rooms.replicas.offline_count == 0
        for index in range(3):
            assert produced(await client.ask(produce("t", b"x", partition=index), 9)).error_code == 0
        await rig.restart()
        client = rig.connect()
        for index in range(3):
            assert values(fetched(await client.ask(fetch("t", wanted(index)), 12))[index]) == [b"x"]

    rig.run(test)


def test_a_topic_made_again_under_its_name_begins_empty() -> None:
    rig = Rig()

    async def test() -> None:
        client = rig.connect()
        for round_ in range(5):
            await rig.create_topic("t", 2)
            answer = produced(await client.ask(produce("t", b"%d" % round_, partition=1), 9))
            assert answer.base_offset == 0
            await client.ask(deletion("t"), 6)
            assert rig.node.rooms.replicas.find("t", 1) is None
        await asyncio.sleep(600)
        assert [name for name in rig.world.disk.list("/data") if name.startswith("t-")] == []

    rig.run(test)


def test_a_partition_nobody_knows_is_set_aside_and_kept() -> None:
    """A crash between the deletion of a topic and that of its files leaves one; so would a wrong cluster."""
    rig = Rig()

    async def test() -> None:
        await rig.create_topic("t", 2)
        await rig.connect().ask(produce("t", b"kept"), 9)
        await rig.node.stop()
        rig.life.end()
        rig.device.locks.clear()
        disk = rig.device.attach(Life("meanwhile"))
        disk.make_directory("/data/ghost-3")
        disk.write_file("/data/ghost-3/00000000000000000000.log", b"records")
        await rig.start()
        await asyncio.sleep(1000)
        names = rig.world.disk.list("/data")
        assert "ghost-3" not in names
        (stray,) = [name for name in names if name.startswith("ghost-3.")]
        assert stray.endswith("-stray")
        assert rig.world.disk.read_file(f"/data/{stray}/00000000000000000000.log") == b"records"
        assert [name for name in names if name.startswith("t-")] == ["t-0", "t-1"]
        await rig.restart()
        assert stray in rig.world.disk.list("/data")
        assert values(fetched(await rig.connect().ask(fetch("t", wanted(0)), 12))[0]) == [b"kept"]

    rig.run(test)


@pytest.mark.parametrize(
    ("registered", "isr", "elr", "partition_epoch", "is_begun_anew"),
    [
        (UNASSIGNED_DIRECTORY, (1, 2), (), 0, True),
        (UNASSIGNED_DIRECTORY, (1, 2), (), 1, False),
        (UNASSIGNED_DIRECTORY, (2,), (1,), 1, False),
        (UNASSIGNED_DIRECTORY, (2,), (), 1, True),
        (MIGRATING_DIRECTORY, (1, 2), (), 1, False),
        (LOST_DIRECTORY, (2,), (1,), 1, True),
        (Uuid(bytes(15) + b"x"), (2,), (), 1, False),
    ],
)
def test_what_may_be_in_a_lost_directory_is_not_begun_anew(
    registered: Uuid, isr: tuple[int, ...], elr: tuple[int, ...], partition_epoch: int, is_begun_anew: bool
) -> None:
    rig = Rig(properties={"log.dirs": "/a,/b", "metadata.log.dir": "/c"})
    registration = led_by_another(
        directories=(registered, UNASSIGNED_DIRECTORY), isr=isr, elr=elr, partition_epoch=partition_epoch
    )

    async def test() -> None:
        hosting, (_, second) = rig.node._hosting, rig.node.rooms.replicas.directories
        topic = TopicImage("t", uuid(1), (registration,))
        assert hosting._directory_for(topic, 0, registration) is not None
        second.go_offline()
        assert (hosting._directory_for(topic, 0, registration) is not None) is is_begun_anew

    rig.run(test)


@pytest.mark.parametrize("has_failed", ["directory", "partition"])
def test_a_partition_that_was_offline_comes_back_once_it_was_moved_away(has_failed: str) -> None:
    rig = Rig(properties={"log.dirs": "/a,/b", "metadata.log.dir": "/c"})

    async def test() -> None:
        hosting, replicas = rig.node._hosting, rig.node.rooms.replicas
        directories = tuple(each.directory_id for each in replicas.directories)
        before = TopicImage("t", uuid(1), (led_by_another(directories=(directories[0], UNASSIGNED_DIRECTORY)),))
        hosting.apply_topics(TopicChanges((PartitionsOf(before, (0,), None),), (), ()))
        hosted = replicas.require("t", 0)
        assert hosted.directory is replicas.directories[0]
        if has_failed == "directory":
            replicas.directory_error(hosted.directory, OSError(errno.EIO, "Input/output error"))
        else:
            replicas.lose(hosted)
        assert replicas.is_offline("t", 0)
        away = TopicImage("t", uuid(1), (led_by_another(replicas=(2,), directories=(UNASSIGNED_DIRECTORY,)),))
        hosting.apply_topics(TopicChanges((), (PartitionsOf(away, (0,), before),), ()))
        assert not replicas.is_offline("t", 0)
        assert not replicas.is_offline(uuid(1), 0)
        back = TopicImage("t", uuid(1), (led_by_another(directories=(UNASSIGNED_DIRECTORY,) * 2),))
        hosting.apply_topics(TopicChanges((), (PartitionsOf(back, (0,), away),), ()))
        hosted = replicas.require("t", 0)
        assert hosted.directory.online
        assert hosted.partition.log.log_end_offset == 0
        strays = [name for name in rig.world.disk.list("/a") if name.endswith("-stray")]
        assert len(strays) == (has_failed == "partition"), "what a broken one has is kept, and not opened again"

    rig.run(test)


def led_by_another(
    *,
    directories: tuple[Uuid, ...],
    replicas: tuple[int, ...] = (1, 2),
    isr: tuple[int, ...] = (2,),
    elr: tuple[int, ...] = (),
    partition_epoch: int = 1,
) -> PartitionRegistration:
    return PartitionRegistration(
        replicas=tuple(map(NodeId, replicas)),
        directories=directories,
        isr=tuple(map(NodeId, isr)),
        removing_replicas=(),
        adding_replicas=(),
        elr=tuple(map(NodeId, elr)),
        last_known_elr=(),
        leader=NodeId(2),
        leader_recovery_state=0,
        leader_epoch=LeaderEpoch(0),
        partition_epoch=partition_epoch,
    )


def test_settings_reach_the_logs_that_they_are_for() -> None:
    rig = Rig()

    async def run() -> None:
        await rig.create_topic("t", configs={"retention.ms": "5000"})
        await rig.create_topic("other")
        log = rig.node.rooms.replicas.require("t", 0).partition.log
        assert log.config.retention_ms == 5000
        change = ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="7000")
        await rig.node.rooms.quorum.append([[change]])
        assert log.config.retention_ms == 7000
        assert rig.node.rooms.replicas.require("other", 0).partition.log.config.retention_ms == 604_800_000

    rig.run(run)


@pytest.mark.parametrize(
    ("isr", "least", "leader", "new_least"),
    [([1, 2], "1", -2, "2"), ([1], "2", 2, "1")],
    ids=["fewer in sync and more needed", "deposed and fewer needed"],
)
def test_registration_and_settings_are_taken_over_in_one_step(
    isr: list[int], least: str, leader: int, new_least: str
) -> None:
    """Under either of them with the old one of the other, broker 1 would acknowledge what only it has."""
    rig = ReplicaRig(2)

    async def test() -> None:
        rig.brokers[2].crash()
        await rig.create_topic("t", [[1, 2]], isr=isr, configs={"min.insync.replicas": least})
        await rig.produce(1, "t", b"alone", acks=1)
        topic_id = rig.image.topics.by_name["t"].topic_id
        new_isr = [1] if leader < 0 else [leader]
        await rig.commit(
            ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value=new_least),
            PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=new_isr, leader=leader),
        )
        assert rig.hosted(1, "t").partition.log.min_insync_replicas == int(new_least)
        assert rig.ends("t")[1] == (0, 1)

    rig.run(test)
