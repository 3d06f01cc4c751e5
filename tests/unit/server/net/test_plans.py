"""Requests with a plan: read by hand or by the compiled decoder, carried out once, then written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.server.net.one_node import ASK, answered_ids, endpoint, on_a_node
from tests.unit.server.rig import Client, Rig, request_body

from odradek.metadata.controller.quotas import PRODUCER_BYTE_RATE
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.server.access.caller import Caller
from odradek.server.net.connection import Connection
from odradek.server.net.dispatch import Endpoint
from odradek.server.rooms import Rooms
from odradek.server.waiting.deferred import Deferred

VERSION = 4


class Plan:
    def __init__(self, group_id: str, *, by_hand: bool) -> None:
        self.group_id = group_id
        self.by_hand = by_hand
        self.throttle_ms = 0


class Served:
    """Heartbeat as an API with a plan; the group's name chooses what comes of it."""

    def __init__(self, rig: Rig) -> None:
        self.carried_out: list[tuple[str, bool]] = []
        self.callers: list[Caller] = []
        self.waiting: dict[str, Deferred[str]] = {}
        self.may_append = asyncio.Event()
        self.endpoint = made = endpoint(rig, ApiKey.HEARTBEAT, VERSION)
        assert made.error_answer is not None
        made.fast_path = None
        made.overlaps = True
        made.read = lambda frame, position: (
            None if b"odd" in bytes(frame[position:]) else Plan(name_in(frame, position), by_hand=True)
        )
        made.plan_of = lambda request, version: Plan(f"{request.group_id} v{version}", by_hand=False)
        made.handle = self.handle
        made.write = self.write
        made.quota_use = lambda plan, outcome, size: (PRODUCER_BYTE_RATE, len(outcome) + size) if plan.by_hand else None

    def handle(self, rooms: Rooms, caller: Caller, plan: Plan) -> Any:
        name = plan.group_id
        self.carried_out.append((name, plan.by_hand))
        self.callers.append(caller)
        if name.startswith("later"):
            self.waiting[name] = Deferred()
            return self.waiting[name]
        if name.startswith("slow"):
            return self._append_slowly(name)
        if name.startswith("refused"):
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return "" if name.startswith("silent") else f"done {name}"

    async def _append_slowly(self, name: str) -> str | Deferred[str]:
        if "at-once" not in name:
            await self.may_append.wait()
        if "refused" in name:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if "later" not in name:
            return f"done {name}"
        self.waiting[name] = Deferred()
        return self.waiting[name]

    def write(self, plan: Plan, outcome: str, correlation_id: int) -> bytes:
        if not outcome:
            return b""
        body = b"\0" + plan.throttle_ms.to_bytes(4) + b"\0\0\0"
        return (len(body) + 4).to_bytes(4) + correlation_id.to_bytes(4) + body


def name_in(frame: memoryview, position: int) -> str:
    return bytes(frame[position + 1 : position + frame[position]]).decode()


def beat(name: str) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=name, generation_id=1, member_id="m")


def owner(client: Client) -> Connection:
    assert isinstance(client.wire.owner, Connection)
    return client.wire.owner


def on_served(test: Callable[[Rig, Client, Served], Any], **properties: str) -> None:
    async def run(rig: Rig, client: Client) -> None:
        await test(rig, client, Served(rig))

    on_a_node(run, **properties)


async def answers(client: Client, *names: str) -> list[HeartbeatResponse]:
    asked = [(client.send(beat(name), VERSION), beat(name)) for name in names]
    return [await client.answer(number, request, VERSION) for number, request in asked]


def test_what_the_reader_does_not_know_the_compiled_decoder_reads() -> None:
    async def test(rig: Rig, client: Client, served: Served) -> None:
        for names in (["a"], ["odd"], ["b", "odd-too", "c"]):
            assert [each.error_code for each in await answers(client, *names)] == [0] * len(names)
        expected = [("a", True), ("odd v4", False), ("b", True), ("odd-too v4", False), ("c", True)]
        assert served.carried_out == expected
        assert [caller.client_id for caller in served.callers] == ["tester"] * 5
        assert served.endpoint.served == 5

    on_served(test)


def test_nothing_is_sent_where_nothing_is_written() -> None:
    async def test(rig: Rig, client: Client, served: Served) -> None:
        for _ in range(2):
            client.send(beat("silent"), VERSION)
        await answers(client, "a")
        assert await answered_ids(client) == [3]

    on_served(test)


def test_who_waits_is_answered_in_the_order_of_the_requests() -> None:
    async def test(rig: Rig, client: Client, served: Served) -> None:
        for name in ("later-1", "later-2", "at once", "silent"):
            client.send(beat(name), VERSION)
        client.send(ASK, 9)
        assert [name for name, _ in served.carried_out] == ["later-1", "later-2", "at once", "silent"]
        served.waiting["later-2"].complete("well")
        assert await answered_ids(client) == []
        served.waiting["later-1"].fail(KafkaError(ErrorCode.ILLEGAL_GENERATION))
        assert await answered_ids(client) == [1, 2, 3, 5]
        assert await client.answer(1, beat(""), VERSION) == HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION)
        assert await client.answer(2, beat(""), VERSION) == HeartbeatResponse(error_code=0)

    on_served(test)


@pytest.mark.parametrize("name", ["slow", "slow-later", "slow-refused"])
def test_nothing_begins_before_a_coroutine_is_through(name: str) -> None:
    """It has not appended yet; what it waits for afterwards holds up nobody."""

    async def test(rig: Rig, client: Client, served: Served) -> None:
        client.send(beat("later"), VERSION)
        client.send(beat(name), VERSION)
        client.send(beat("behind"), VERSION)
        await asyncio.sleep(0.1)
        assert [name for name, _ in served.carried_out] == ["later", name]
        served.may_append.set()
        await asyncio.sleep(0.1)
        assert [name for name, _ in served.carried_out] == ["later", name, "behind"]
        for waiting in served.waiting.values():
            waiting.complete("well")
        assert await answered_ids(client) == [1, 2, 3]
        answer = await client.answer(2, beat(name), VERSION)
        assert answer.error_code == (ErrorCode.ILLEGAL_GENERATION if "refused" in name else 0)

    on_served(test)


@pytest.mark.parametrize("name", ["refused", "slow-at-once-refused"])
def test_who_is_refused_is_told(name: str) -> None:
    async def test(rig: Rig, client: Client, served: Served) -> None:
        assert [each.error_code for each in await answers(client, name)] == [ErrorCode.ILLEGAL_GENERATION]
        names = ("slow-at-once", "a", name)
        assert [each.error_code for each in await answers(client, *names)] == [0, 0, ErrorCode.ILLEGAL_GENERATION]

    on_served(test)


def test_who_leaves_is_waited_for_no_more() -> None:
    async def test(rig: Rig, client: Client, served: Served) -> None:
        client.send(beat("later"), VERSION)
        leaving = rig.connect()
        leaving.send(beat("later-too"), VERSION)
        slow = rig.connect()
        slow.send(beat("slow-later"), VERSION)
        for each in (leaving, slow):
            each.wire.lose(None)
        served.waiting["later-too"].complete("for nobody")
        served.may_append.set()
        await asyncio.sleep(0.1)
        assert list(served.waiting) == ["later", "later-too"], "its coroutine was cancelled"
        served.waiting["later"].complete("well")
        assert await answered_ids(client) == [1]

    on_served(test)


@pytest.mark.parametrize("name", ["a", "later", "slow", "odd"])
def test_a_client_pays_for_what_came_of_its_plan(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(rig: Rig, client: Client, served: Served) -> None:
        used: list[tuple[str, str, str, float]] = []

        def note(*use: Any) -> int:
            used.append(use)
            return 1_000 if use[0] == PRODUCER_BYTE_RATE else 0

        monkeypatch.setattr(rig.node.rooms.quotas, "used", note)
        rig.node.rooms.quotas.active = True
        client.send(beat(name), VERSION)
        for waiting in served.waiting.values():
            waiting.complete("done later")
        served.may_append.set()
        answer = await client.answer(1, beat(name), VERSION)
        size = len(request_body(beat(name), VERSION, 1))
        bytes_used = [use for use in used if use[0] == PRODUCER_BYTE_RATE]
        if name == "odd":
            assert (used, answer.throttle_time_ms) == ([], 0), "its plan says that it is not metered"
        else:
            assert bytes_used == [(PRODUCER_BYTE_RATE, "ANONYMOUS", "tester", len(f"done {name}") + size)]
            assert answer.throttle_time_ms == 1_000
            assert owner(client)._muted is not None
        rig.node.rooms.quotas.active = False

    on_served(test)


def test_the_endpoint_of_an_api_without_a_plan_has_none() -> None:
    async def test(rig: Rig, client: Client) -> None:
        made: Endpoint = endpoint(rig, ApiKey.METADATA, 9)
        assert (made.read, made.plan_of, made.write, made.quota_use) == (None, None, None, None)

    on_a_node(test)
