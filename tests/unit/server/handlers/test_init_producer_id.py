from __future__ import annotations

import pytest
from tests.unit.server.rig import Rig

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest


def ask(
    version: int, *, transactional_id: str | None = None, producer_id: int = -1, producer_epoch: int = -1
) -> list[tuple[int, int, int]]:
    rig = Rig()

    async def run() -> list[tuple[int, int, int]]:
        client = rig.connect()
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=60_000,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        answers = [await client.ask(request, version) for _ in range(2)]
        return [(answer.error_code, answer.producer_id, answer.producer_epoch) for answer in answers]

    return rig.run(run)


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own(version: int) -> None:
    assert ask(version) == [(0, 0, 0), (0, 1, 0)]


def test_a_producer_without_transactions_always_gets_a_new_id() -> None:
    assert ask(5, producer_id=77, producer_epoch=3) == [(0, 0, 0), (0, 1, 0)]


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(5, -1), (-1, 3)])
def test_an_id_without_its_epoch(producer_id: int, producer_epoch: int) -> None:
    refused = (ErrorCode.INVALID_REQUEST, -1, -1)
    assert ask(4, producer_id=producer_id, producer_epoch=producer_epoch) == [refused] * 2


def test_a_transactional_id_is_asked_of_its_coordinator_alone() -> None:
    assert ask(5, transactional_id="mine") == [(ErrorCode.NOT_COORDINATOR, -1, -1)] * 2, "nobody asked who it is"
    assert ask(5, transactional_id="") == [(ErrorCode.INVALID_REQUEST, -1, -1)] * 2
