"""What a broker with several directories chose for a replica is told to the cluster."""

from __future__ import annotations

import asyncio

from tests.unit.server.rig import Rig

from odradek.metadata.image.topics import UNASSIGNED_DIRECTORY

TWO_DIRECTORIES = {"log.dirs": "/data/a,/data/b"}


def directories(rig: Rig) -> list[bytes]:
    return [partition.directories[0] for partition in rig.node.rooms.image.topics.by_name["t"].partitions]


def hosted_in(rig: Rig, count: int) -> list[bytes]:
    return [rig.node.rooms.replicas.require("t", index).directory.directory_id for index in range(count)]


def test_a_broker_with_two_directories_tells_which_it_chose() -> None:
    rig = Rig(properties=TWO_DIRECTORIES)

    async def run() -> None:
        await rig.create_topic("t", 4)
        await asyncio.sleep(1)
        assert directories(rig) == hosted_in(rig, 4)
        assert len(set(directories(rig))) == 2
        assert UNASSIGNED_DIRECTORY not in directories(rig)

    rig.run(run)


def test_what_could_not_be_told_is_told_at_the_next_start() -> None:
    rig = Rig(properties=TWO_DIRECTORIES)

    async def run() -> None:
        await rig.create_topic("t", 2)
        assert set(directories(rig)) == {UNASSIGNED_DIRECTORY}
        rig.crash()
        await rig.start()
        await asyncio.sleep(1)
        assert directories(rig) == hosted_in(rig, 2)

    rig.run(run)


def test_one_directory_leaves_nothing_to_tell() -> None:
    rig = Rig()

    async def run() -> None:
        await rig.create_topic("t", 2)
        (partition, _) = rig.node.rooms.image.topics.by_name["t"].partitions
        assert partition.partition_epoch == 0
        assert directories(rig) == hosted_in(rig, 2)

    rig.run(run)
