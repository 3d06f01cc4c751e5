"""What was agreed on is carried out, and what this broker chose itself is told to the cluster."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.server.replica_rig import ReplicaRig
from tests.unit.server.rig import Rig

from odradek.metadata.image.topics import UNASSIGNED_DIRECTORY
from odradek.metadata.records import ConfigRecord, PartitionChangeRecord

TWO_DIRECTORIES = {"log.dirs": "/data/a,/data/b"}


def directories(rig: Rig) -> list[bytes]:
    return [partition.directories[0] for partition in rig.node.image.topics.by_name["t"].partitions]


def hosted_in(rig: Rig, count: int) -> list[bytes]:
    return [rig.node.replicas.require("t", index).directory.directory_id for index in range(count)]


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
        (partition, _) = rig.node.image.topics.by_name["t"].partitions
        assert partition.partition_epoch == 0
        assert directories(rig) == hosted_in(rig, 2)

    rig.run(run)


def test_settings_reach_the_logs_that_they_are_for() -> None:
    rig = Rig()

    async def run() -> None:
        await rig.create_topic("t", configs={"retention.ms": "5000"})
        await rig.create_topic("other")
        log = rig.node.replicas.require("t", 0).partition.log
        assert log.config.retention_ms == 5000
        change = ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="7000")
        await rig.node.quorum.append([[change]])
        assert log.config.retention_ms == 7000
        assert rig.node.replicas.require("other", 0).partition.log.config.retention_ms == 604_800_000

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
