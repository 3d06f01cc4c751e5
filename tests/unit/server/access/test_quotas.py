"""Rates above a quota are paid for with silence; without quotas nobody is metered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.server.asking import fetch, fetched, produce, produced, wanted
from tests.unit.server.rig import Client, Rig

from odradek.metadata.controller.quotas import PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from odradek.metadata.image.client_quotas import ClientQuotasImage, Entity
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestedEntryData,
)
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.server.access.quotas import MAX_RATES, Quotas, Rate, TokenBucket


class HandClock:
    def __init__(self) -> None:
        self.at_ms = 1_000_000

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_ms(self) -> int:
        return self.at_ms


def test_a_burst_within_the_windows_is_free_and_what_is_above_is_waited_for() -> None:
    rate = Rate(windows=11, window_ms=1000)
    rate.record(10_000, 0)
    assert rate.throttle_ms(1000, 0) == 0, "ten seconds' worth is what ten full windows hold"
    rate.record(1_000, 500)
    assert rate.throttle_ms(1000, 500) == 500, "a thousand above ten and a half seconds' worth"
    assert rate.throttle_ms(1000, 11_000) == 0


@pytest.mark.parametrize("limit", [1e-20, 5e-324])
def test_a_wait_fits_into_an_answer(limit: float) -> None:
    rate = Rate(windows=11, window_ms=1_000)
    rate.record(1e6, 0)
    assert rate.throttle_ms(limit, 0) == (1 << 31) - 1
    bucket = TokenBucket(0)
    assert bucket.take(5, per_second=limit, burst_s=11, now_ms=0, strict=True) == (1 << 31) - 1


def test_what_is_older_than_all_windows_is_forgotten() -> None:
    rate = Rate(windows=3, window_ms=1000)
    rate.record(1_000_000, 0)
    assert rate.throttle_ms(10, 2_000) > 0
    assert rate.throttle_ms(10, 3_000) == 0
    assert rate.is_idle(3_000)


def test_changes_are_refused_once_the_bucket_is_overdrawn() -> None:
    bucket = TokenBucket(0)
    take: dict[str, Any] = {"per_second": 1.0, "burst_s": 10.0, "strict": True}
    assert bucket.take(15, now_ms=0, **take) == 5_000
    with pytest.raises(KafkaError) as refused:
        bucket.take(1, now_ms=0, **take)
    assert refused.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert bucket.take(1, now_ms=5_000, **take) == 1_000
    assert bucket.take(1, now_ms=5_000, **take | {"strict": False}) == 2_000


@pytest.mark.parametrize("strongest", range(8))
def test_the_most_special_quota_counts(strongest: int) -> None:
    order: list[Entity] = [
        (("client-id", "app"), ("user", "alice")),
        (("client-id", None), ("user", "alice")),
        (("user", "alice"),),
        (("client-id", "app"), ("user", None)),
        (("client-id", None), ("user", None)),
        (("user", None),),
        (("client-id", "app"),),
        (("client-id", None),),
    ]
    quotas = Quotas(HandClock(), windows=11, window_s=1)
    there = {entity: {PRODUCER_BYTE_RATE: float(place)} for place, entity in enumerate(order) if place >= strongest}
    quotas.apply(ClientQuotasImage(dict(there)))
    found = quotas.limit(PRODUCER_BYTE_RATE, "alice", "app")
    assert found is not None
    limit, sharing = found
    assert limit == strongest
    assert dict(sharing) == {kind: {"user": "alice", "client-id": "app"}[kind] for kind, _ in order[strongest]}
    assert quotas.limit(REQUEST_PERCENTAGE, "alice", "app") is None


def test_a_quota_is_shared_by_whom_it_names_and_waits_for_work_are_bounded() -> None:
    clock = HandClock()
    quotas = Quotas(clock, windows=11, window_s=1)
    quotas.apply(ClientQuotasImage({(("user", None),): {PRODUCER_BYTE_RATE: 100.0, REQUEST_PERCENTAGE: 1.0}}))
    assert quotas.used(PRODUCER_BYTE_RATE, "alice", "one", 900) == 0
    assert quotas.used(PRODUCER_BYTE_RATE, "bob", "one", 900) == 0
    assert quotas.used(PRODUCER_BYTE_RATE, "alice", "two", 900) > 0
    assert quotas.used(REQUEST_PERCENTAGE, "alice", "one", 1_000_000) == 1_000


def test_clients_that_are_gone_are_forgotten() -> None:
    clock = HandClock()
    quotas = Quotas(clock, windows=11, window_s=1)
    quotas.apply(ClientQuotasImage({(("client-id", None),): {PRODUCER_BYTE_RATE: 100.0}}))
    for number in range(MAX_RATES):
        quotas.used(PRODUCER_BYTE_RATE, "u", f"client {number}", 1)
    clock.at_ms += 60_000
    quotas.used(PRODUCER_BYTE_RATE, "u", "another", 1)
    assert len(quotas._rates) == 1


async def set_quota(client: Client, kind: str, name: str | None, **limits: float | None) -> None:
    entry = RequestedEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name)],
        ops=[OpData(key=key, value=limit or 0.0, remove=limit is None) for key, limit in limits.items()],
    )
    response = await client.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
    assert [each.error_code for each in response.entries] == [0]


def test_a_producer_above_its_quota_is_told_to_wait_and_not_heard_meanwhile() -> None:
    rig = Rig()

    async def push() -> None:
        await rig.create_topic("t")
        admin, client = rig.connect(), rig.connect()
        free = await client.ask(produce("t", bytes(50_000)), 9)
        assert free.throttle_time_ms == 0
        await set_quota(admin, "user", None, producer_byte_rate=1000.0)
        throttled = await client.ask(produce("t", bytes(50_000)), 9)
        assert produced(throttled).error_code == 0
        assert 35_000 < throttled.throttle_time_ms < 45_000
        assert client.wire.paused
        asked = client.send(produce("t", b"later"), 9)
        await asyncio.sleep(throttled.throttle_time_ms / 1000 - 1)
        assert not client.has_answer(asked)
        await asyncio.sleep(2)
        assert client.has_answer(asked)
        await set_quota(admin, "user", None, producer_byte_rate=None)
        assert not rig.node.rooms.guarded
        assert (await client.ask(produce("t", bytes(50_000)), 9)).throttle_time_ms == 0

    rig.run(push)


def test_a_consumer_above_its_quota_is_slowed_down_but_gets_what_there_is() -> None:
    rig = Rig()

    async def pull() -> None:
        await rig.create_topic("t")
        client = rig.connect()
        await client.ask(produce("t", bytes(50_000)), 9)
        await set_quota(client, "client-id", "tester", consumer_byte_rate=2000.0)
        response = await client.ask(fetch("t", wanted()), 12)
        assert len(fetched(response)[0].records or b"") > 50_000
        assert 10_000 < response.throttle_time_ms < 20_000
        began = rig.loop.time()
        await client.ask(MetadataRequest(topics=None), 9)
        assert rig.loop.time() - began >= response.throttle_time_ms / 1000 - 0.001

    rig.run(pull)


def test_a_connection_that_closes_while_muted_is_gone() -> None:
    rig = Rig()

    async def leave() -> None:
        await rig.create_topic("t")
        client = rig.connect()
        await set_quota(client, "user", None, producer_byte_rate=1.0)
        assert (await client.ask(produce("t", bytes(50_000)), 9)).throttle_time_ms > 0
        client.wire.lose(None)
        await asyncio.sleep(100_000)

    rig.run(leave)


def test_an_address_that_connects_too_often_is_kept_waiting_and_let_go() -> None:
    rig = Rig()

    async def connect() -> None:
        admin = rig.connect()
        await set_quota(admin, "ip", None, connection_creation_rate=1.0)
        assert not rig.node.rooms.guarded, "nobody's requests are metered"
        welcome = [rig.connect() for _ in range(10)]
        refused = rig.connect()
        refused.send(MetadataRequest(topics=None), 9)
        await asyncio.sleep(0.05)
        assert not refused.wire.closed
        await asyncio.sleep(1)
        assert refused.wire.closed
        assert not refused.answered
        for client in welcome:
            assert (await client.ask(MetadataRequest(topics=None), 9)).brokers
        await asyncio.sleep(20)
        assert (await rig.connect().ask(MetadataRequest(topics=None), 9)).brokers

    rig.run(connect)


def test_who_makes_too_many_topics_has_to_wait() -> None:
    rig = Rig()

    def topics(name: str, partitions: int) -> CreateTopicsRequest:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        return CreateTopicsRequest(topics=[topic])

    async def create() -> None:
        client, other = rig.connect(), rig.connect()
        await set_quota(client, "client-id", None, controller_mutation_rate=1.0)
        first = await client.ask(topics("one", 13), 7)
        assert (first.topics[0].error_code, first.throttle_time_ms) == (0, 2_000)
        refused = await other.ask(topics("two", 1), 7)
        assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        older = await other.ask(topics("three", 1), 5)
        assert older.topics[0].error_code == 0
        assert 2_900 < older.throttle_time_ms <= 3_000

    rig.run(create)


def test_quotas_that_cannot_be_applied_leave_the_former_ones_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    applying = Quotas.apply
    poisoned = False

    def apply(self: Quotas, image: ClientQuotasImage) -> None:
        if poisoned:
            raise ZeroDivisionError
        applying(self, image)

    async def change() -> None:
        nonlocal poisoned
        client = rig.connect()
        await set_quota(client, "user", None, producer_byte_rate=1000.0)
        poisoned = True
        await set_quota(client, "user", None, producer_byte_rate=2000.0)
        limits = []
        for poison in (True, False):
            poisoned = poison
            await rig.create_topic(f"commit-{poison}")
            found = rig.node.rooms.quotas.limit("producer_byte_rate", "User:ANONYMOUS", "")
            limits.append(found and found[0])
        assert limits == [1000.0, 2000.0]
        assert rig.node.failed is None

    monkeypatch.setattr(Quotas, "apply", apply)
    rig.run(change)
