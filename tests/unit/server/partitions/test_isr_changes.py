"""What leaders ask the controller for: nothing that was submitted is forgotten, whenever it was."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.unit.server.replica_rig import ReplicaRig

from odradek.metadata.image.topics import partition_record
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_partition import AlterPartitionResponse


def test_a_proposal_that_comes_up_while_the_last_is_settled_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The task that asks has ended by then, and nobody knows it yet."""
    rig = ReplicaRig(2)
    ask = rig.ask

    async def ask_and_submit(request: Message, *, timeout_ms: int) -> AlterPartitionResponse:
        answer = await ask(request, timeout_ms=timeout_ms)
        if rig.refuses is not None:
            rig.refuses = None
            leader = rig.brokers[1].replicas
            asyncio.get_running_loop().call_soon(leader.maybe_expand_isr, leader.require("t", 0))
        return answer

    monkeypatch.setattr(rig, "ask", ask_and_submit)

    async def test() -> None:
        rig.refuses = ErrorCode.OPERATION_NOT_ATTEMPTED
        await rig.create_topic("t", [[1, 2]], isr=[1])
        await rig.until(lambda: rig.registration("t").isr == (1, 2), within_s=5)

    rig.run(test)


def test_a_leader_that_is_behind_the_controller_for_good_asks_ahead_of_it() -> None:
    """It has a snapshot in which a ClearElrRecord raised no partition epoch: no image would ever say anything else."""
    rig = ReplicaRig(2)

    async def test() -> None:
        rig.refuses = ErrorCode.INVALID_UPDATE_VERSION
        await rig.create_topic("t", [[1, 2]], isr=[1])
        await asyncio.sleep(4)
        epochs = [request.topics[0].partitions[0].partition_epoch for request in rig.asked]
        assert epochs == [0]
        await asyncio.sleep(2)
        epochs = [request.topics[0].partitions[0].partition_epoch for request in rig.asked]
        assert epochs == [0, 1_000]
        rig.refuses = None
        topic_id = rig.image.topics.by_name["t"].topic_id
        await rig.commit(partition_record(topic_id, 0, replace(rig.registration("t"), partition_epoch=1_001)))
        await rig.until(lambda: rig.registration("t").isr == (1, 2), within_s=5)
        assert rig.registration("t").partition_epoch == 1_002

    rig.run(test)
