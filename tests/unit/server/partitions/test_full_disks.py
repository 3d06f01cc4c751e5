"""A broker without room for what it leads: others should lead while that is so, and reads go on."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.server.replica_rig import ReplicaRig

from odradek.protocol.errors import ErrorCode
from odradek.storage.directories import LogDirectory

PLENTY = 1 << 40


def test_a_leader_without_room_stands_aside_until_there_is_some() -> None:
    rig = ReplicaRig(3)

    async def test() -> None:
        await rig.create_topic("t", [[1, 2, 3]])
        assert (await rig.produce(1, "t", b"a")).error_code == 0
        leader = rig.brokers[1]
        told: list[bool] = []
        leader.replicas.full_disks.on_change = lambda: told.append(leader.replicas.full_disks.stands_aside)
        leader.device.capacity = leader.device.used
        for _ in range(3):
            refused = await rig.produce(1, "t", b"b" * 500)
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert told == [True]
        await rig.fence(1)
        await rig.elect("t", 2, [2, 3])
        assert (await rig.produce(2, "t", b"c" * 500)).error_code == 0
        await asyncio.sleep(10)
        assert told == [True]
        leader.device.capacity = PLENTY
        await rig.until(lambda: told == [True, False], within_s=3)
        await rig.until(lambda: rig.ends("t")[1] == (2, 2))

    rig.run(test)


def test_what_a_full_directory_had_reserved_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    gave: list[str] = []
    monkeypatch.setattr(LogDirectory, "give_back_room", lambda directory: gave.append(directory.path))
    rig = ReplicaRig(1)

    async def test() -> None:
        await rig.create_topic("t", [[1]])
        leader = rig.brokers[1]
        assert (await rig.produce(1, "t", b"a")).error_code == 0
        leader.device.capacity = leader.device.used
        for _ in range(2):
            assert (await rig.produce(1, "t", b"b" * 500)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert gave == ["/data"]

    rig.run(test)


@pytest.mark.parametrize("isr", [[1], [1, 2]])
def test_who_could_be_followed_by_nobody_goes_on(isr: list[int]) -> None:
    rig = ReplicaRig(2, properties={"min.insync.replicas": "1"})

    async def test() -> None:
        await rig.create_topic("t", [[1, 2]], isr=isr)
        leader = rig.brokers[1]
        leader.device.capacity = leader.device.used
        refused = await rig.produce(1, "t", b"b" * 500, acks=1)
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert leader.replicas.full_disks.stands_aside == (len(isr) > 1)

    rig.run(test)


def test_a_follower_without_room_keeps_nobody_waiting() -> None:
    rig = ReplicaRig(3)

    async def test() -> None:
        await rig.create_topic("t", [[1, 2, 3]])
        full = rig.brokers[3]
        full.device.capacity = full.device.used
        waiting = asyncio.ensure_future(rig.produce(1, "t", b"b" * 500))
        await rig.until(lambda: full.replicas.full_disks.stands_aside, within_s=1)
        assert not waiting.done()
        await rig.fence(3)
        await rig.change("t", isr=[1, 2])
        assert (await waiting).error_code == 0
        await asyncio.sleep(3)
        assert rig.ends("t")[3] == (0, 0)
        full.device.capacity = PLENTY
        await rig.until(lambda: rig.ends("t")[3] == (1, 1))
        await rig.until(lambda: not full.replicas.full_disks.stands_aside, within_s=3)

    rig.run(test)


def test_a_follower_that_nobody_waits_for_goes_on() -> None:
    rig = ReplicaRig(3, properties={"min.insync.replicas": "1"})

    async def test() -> None:
        rig.refuses = ErrorCode.OPERATION_NOT_ATTEMPTED
        await rig.create_topic("t", [[1, 2, 3]], isr=[1, 2])
        full = rig.brokers[3]
        full.device.capacity = full.device.used
        assert (await rig.produce(1, "t", b"b" * 500, acks=1)).error_code == 0
        await asyncio.sleep(3)
        assert rig.ends("t")[3] == (0, 0)
        assert not full.replicas.full_disks.stands_aside

    rig.run(test)
