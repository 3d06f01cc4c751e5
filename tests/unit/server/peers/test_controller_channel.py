"""The way to the active controller: whoever that is by now, until the time is up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.server.controllers import Controllers, never, play

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from odradek.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from odradek.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

REQUEST = AllocateProducerIdsRequest(broker_id=1, broker_epoch=2)
KEY = ApiKey.ALLOCATE_PRODUCER_IDS


def block(first: int) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=10)


def test_the_active_controller_is_asked_over_one_connection() -> None:
    async def test(controllers: Controllers) -> None:
        controllers.script(1, KEY, lambda request: block(request.broker_epoch))
        for _ in range(3):
            answer = await controllers.channel.ask(REQUEST, timeout_ms=1_000)
            assert answer.producer_id_start == 2
        assert controllers.by_port[1].count(ApiKey.API_VERSIONS) == 1
        assert controllers.by_port[2].seen == []

    play(test)


def test_those_who_ask_at_once_share_the_connection() -> None:
    async def test(controllers: Controllers) -> None:
        controllers.script(1, KEY, lambda request: block(1))
        await asyncio.gather(*(controllers.channel.ask(REQUEST, timeout_ms=1_000) for _ in range(5)))
        assert controllers.by_port[1].count(ApiKey.API_VERSIONS) == 1
        assert controllers.by_port[1].count(KEY) == 5

    play(test)


def test_an_older_controller_is_asked_in_its_own_version() -> None:
    async def test(controllers: Controllers) -> None:
        told = ApiVersion(api_key=ApiKey.BROKER_HEARTBEAT, min_version=0, max_version=1)
        controllers.script(1, ApiKey.API_VERSIONS, lambda request: ApiVersionsResponse(api_keys=[told]))
        controllers.script(1, ApiKey.BROKER_HEARTBEAT, lambda request: BrokerHeartbeatResponse())
        request = BrokerHeartbeatRequest(broker_id=1, current_metadata_offset=0, want_fence=True, want_shut_down=False)
        await controllers.channel.ask(request, timeout_ms=1_000)
        assert controllers.by_port[1].seen[-1][1] == 1
        with pytest.raises(KafkaError) as refused:
            await controllers.channel.ask(REQUEST, timeout_ms=1_000)
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION

    play(test)


def test_one_that_is_not_active_is_asked_again_until_it_is() -> None:
    async def test(controllers: Controllers) -> None:
        answers = [AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)] * 3 + [block(5)]
        controllers.script(1, KEY, lambda request: answers.pop(0))
        assert (await controllers.channel.ask(REQUEST, timeout_ms=5_000)).producer_id_start == 5
        answers += [AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)]
        once = await controllers.channel.ask(REQUEST, timeout_ms=5_000, retry=False)
        assert once.error_code == ErrorCode.NOT_CONTROLLER

    play(test)


def test_a_lost_connection_is_made_again() -> None:
    async def test(controllers: Controllers) -> None:
        answers: list[Any] = [None, None, block(5)]
        controllers.script(1, KEY, lambda request: answers.pop(0))
        assert (await controllers.channel.ask(REQUEST, timeout_ms=5_000)).producer_id_start == 5
        assert controllers.by_port[1].count(ApiKey.API_VERSIONS) == 3
        answers.append(None)
        with pytest.raises(KafkaError) as failed:
            await controllers.channel.ask(REQUEST, timeout_ms=5_000, retry=False)
        assert failed.value.code is ErrorCode.NETWORK_EXCEPTION

    play(test)


def test_nobody_leads_yet() -> None:
    async def test(controllers: Controllers) -> None:
        controllers.leading = None
        controllers.script(2, KEY, lambda request: block(2))
        asking = asyncio.ensure_future(controllers.channel.ask(REQUEST, timeout_ms=60_000))
        await asyncio.sleep(5)
        assert not asking.done()
        controllers.lead(2)
        assert (await asking).producer_id_start == 2
        assert controllers.world.clock.monotonic_ms() < 5_100, "a change of the leader is acted on at once"

    play(test)


@pytest.mark.parametrize("silent_about", [KEY, ApiKey.API_VERSIONS])
def test_what_a_silent_controller_was_asked_is_asked_of_the_next(silent_about: ApiKey) -> None:
    async def test(controllers: Controllers) -> None:
        controllers.script(1, KEY, never)
        controllers.script(1, silent_about, never)
        controllers.script(2, KEY, lambda request: block(2))
        asking = asyncio.ensure_future(controllers.channel.ask(REQUEST, timeout_ms=60_000))
        await asyncio.sleep(1)
        controllers.lead(None)
        await asyncio.sleep(1)
        controllers.lead(2)
        assert (await asking).producer_id_start == 2
        assert controllers.world.clock.monotonic_ms() < 2_200

    play(test)


def test_time_is_up() -> None:
    async def test(controllers: Controllers) -> None:
        controllers.by_port[1].is_up = False
        with pytest.raises(KafkaError, match=r"No controller answered within 3000 ms: .*Connection refused") as failed:
            await controllers.channel.ask(REQUEST, timeout_ms=3_000)
        assert failed.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert controllers.world.clock.monotonic_ms() < 4_000
        controllers.leading = None
        with pytest.raises(KafkaError, match="nobody knows who the active controller is"):
            await controllers.channel.ask(REQUEST, timeout_ms=1_000)

    play(test)


def test_closing_lets_everybody_go() -> None:
    async def test(controllers: Controllers) -> None:
        controllers.script(1, KEY, never)
        asking = [asyncio.ensure_future(controllers.channel.ask(REQUEST, timeout_ms=60_000)) for _ in range(2)]
        await asyncio.sleep(1)
        controllers.channel.close()
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [KafkaError, KafkaError]
        assert controllers.world.clock.monotonic_ms() < 2_000

    play(test)
