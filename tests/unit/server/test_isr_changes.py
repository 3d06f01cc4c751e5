"""What leaders ask the controller for: nothing that was submitted is forgotten, whenever it was."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.server.replica_rig import ReplicaRig

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
            asyncio.get_running_loop().call_soon(leader.welcome, leader.require("t", 0))
        return answer

    monkeypatch.setattr(rig, "ask", ask_and_submit)

    async def test() -> None:
        rig.refuses = ErrorCode.OPERATION_NOT_ATTEMPTED
        await rig.create_topic("t", [[1, 2]], isr=[1])
        await rig.until(lambda: rig.registration("t").isr == (1, 2), within_s=5)

    rig.run(test)
