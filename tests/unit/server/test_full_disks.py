"""A broker without room for what it leads: others should lead while that is so, and reads go on."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.server.replica_rig import ReplicaRig

from odradek.protocol.errors import ErrorCode

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
        await rig.elect("t", 2, [2, 3])
        assert (await rig.produce(2, "t", b"c" * 500)).error_code == 0
        await asyncio.sleep(10)
        assert told == [True]
        leader.device.capacity = PLENTY
        await rig.until(lambda: told == [True, False], within_s=3)
        await rig.until(lambda: rig.ends("t")[1] == (2, 2))

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


def test_a_follower_without_room_need_not_stand_aside() -> None:
    rig = ReplicaRig(3)

    async def test() -> None:
        await rig.create_topic("t", [[1, 2, 3]])
        full = rig.brokers[3]
        full.device.capacity = full.device.used
        assert (await rig.produce(1, "t", b"b" * 500, acks=1)).error_code == 0
        await asyncio.sleep(3)
        assert rig.ends("t")[3] == (0, 0)
        assert not full.replicas.full_disks.stands_aside
        full.device.capacity = PLENTY
        await rig.until(lambda: rig.ends("t")[3] == (1, 1))

    rig.run(test)
