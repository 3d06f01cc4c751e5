"""OffsetForLeaderEpoch: where an epoch ended."""

from __future__ import annotations

import pytest
from tests.unit.server.asking import produce
from tests.unit.server.rig import Client, Rig

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


async def look_up(
    client: Client, epoch: int, version: int = 4, *, current: int = -1, topic: str = "t", partition: int = 0
) -> EpochEndOffset:
    wanted = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])])
    response = await client.ask(request, version)
    ((found,),) = [each.partitions for each in response.topics]
    assert isinstance(found, EpochEndOffset)
    return found


@pytest.mark.parametrize("version", [2, 3, 4])
def test_epochs_end_where_the_next_began(version: int) -> None:
    rig = Rig()

    async def test() -> None:
        await rig.create_topic("t")
        await rig.connect().ask(produce("t", b"a", b"b"), 9)
        await rig.restart()
        client = rig.connect()
        await client.ask(produce("t", b"c"), 9)
        new = rig.node.rooms.replicas.require("t", 0).partition.state.leader_epoch
        assert new > 0
        for epoch, end in ((0, (0, 2)), (new, (new, 3)), (new + 1, (-1, -1)), (-1, (-1, -1))):
            found = await look_up(client, epoch, version)
            assert (found.error_code, (found.leader_epoch, found.end_offset)) == (0, end)

    rig.run(test)


def test_errors_are_told_by_partition() -> None:
    rig = Rig()

    async def test() -> None:
        await rig.create_topic("t")
        await rig.restart()
        client = rig.connect()
        current = rig.node.rooms.replicas.require("t", 0).partition.state.leader_epoch
        assert (await look_up(client, 0, current=current)).error_code == 0
        assert (await look_up(client, 0, current=current + 1)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert (await look_up(client, 0, current=current - 1)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        for topic, partition in (("nowhere", 0), ("t", 3)):
            found = await look_up(client, 0, topic=topic, partition=partition)
            assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (found.leader_epoch, found.end_offset) == (-1, -1)

    rig.run(test)
