"""Replication throttles on brokers of a made-up world: how long a copy takes, and who is not held up by it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.server.replica_rig import ReplicaRig

from odradek.metadata.image.configs import ALL_BROKERS, BROKER_RESOURCE, TOPIC_RESOURCE
from odradek.metadata.records import ConfigRecord
from odradek.replication.throttle import UNLIMITED

PIECE = 100_000
QUICK_FETCHES = {"replica.fetch.max.bytes": "1000", "replica.lag.time.max.ms": "3000"}
"""A fetch takes one record of a partition, so that the rate is kept closely."""

LEADER, FOLLOWER = "leader.replication.throttled", "follower.replication.throttled"


async def set_config(rig: ReplicaRig, resource_type: int, resource: str, key: str, text: str | None) -> None:
    await rig.commit(ConfigRecord(resource_type=resource_type, resource_name=resource, name=key, value=text))


async def throttle(rig: ReplicaRig, broker: str, side: str, rate: int | None) -> None:
    await set_config(rig, BROKER_RESOURCE, broker, f"{side}.rate", None if rate is None else str(rate))


async def list_replicas(rig: ReplicaRig, side: str, replicas: str | None, topic: str = "t") -> None:
    await set_config(rig, TOPIC_RESOURCE, topic, f"{side}.replicas", replicas)


async def fill(rig: ReplicaRig, topic: str, pieces: int, index: int = 0) -> None:
    for _ in range(pieces):
        assert (await rig.produce(1, topic, bytes(PIECE), index=index)).error_code == 0


async def seconds_until_in_sync(rig: ReplicaRig, topic: str = "t", index: int = 0) -> float:
    started = rig.loop.time()
    await rig.until(lambda: 2 in rig.registration(topic, index).isr, within_s=600)
    return rig.loop.time() - started


async def add_replica(rig: ReplicaRig, topic: str = "t", index: int = 0) -> None:
    await rig.change(topic, index, replicas=[1, 2], directories=[rig.uuid(101), rig.uuid(102)])


@pytest.mark.parametrize(
    ("side", "broker", "replicas", "throttled"),
    [
        (LEADER, "1", "0:1", True),
        (LEADER, "1", "*", True),
        (LEADER, ALL_BROKERS, "0:1,0:2", True),
        (LEADER, "2", "*", False),  # Another broker's rate.
        (LEADER, "1", "0:2,1:1", False),  # Another broker's replica, another partition.
        (FOLLOWER, "2", "0:2", True),
        (FOLLOWER, ALL_BROKERS, "*", True),
        (FOLLOWER, "1", "*", False),
        (FOLLOWER, "2", "0:1,1:2", False),
    ],
)
def test_a_copy_takes_its_size_by_the_rate(side: str, broker: str, replicas: str, throttled: bool) -> None:
    rig = ReplicaRig(2, properties=QUICK_FETCHES)

    async def story() -> None:
        await rig.create_topic("t", [[1]])
        await fill(rig, "t", 20)
        await throttle(rig, broker, side, 200_000)
        await list_replicas(rig, side, replicas)
        await add_replica(rig)
        seconds = await seconds_until_in_sync(rig)
        if throttled:
            assert 8.5 < seconds < 12
        else:
            assert seconds < 5, "the made-up network may be slow, but not as slow as that"

    rig.run(story)


@pytest.mark.parametrize("side", [LEADER, FOLLOWER])
def test_a_throttle_that_is_raised_or_removed_lets_go_at_once(side: str) -> None:
    rig = ReplicaRig(2, properties=QUICK_FETCHES)

    async def story() -> None:
        for topic in ("t", "u", "v"):
            await rig.create_topic(topic, [[1]])
            await fill(rig, topic, 20)
        for broker in ("1", "2"):
            await throttle(rig, broker, side, 1_000)
        ways: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("t", lambda: throttle(rig, "1" if side is LEADER else "2", side, 1 << 30)),
            ("u", lambda: list_replicas(rig, side, None, "u")),
            ("v", lambda: list_replicas(rig, side, "", "v")),
        ]
        for topic, let_go in ways:
            for broker in ("1", "2"):
                await throttle(rig, broker, side, 1_000)
            await list_replicas(rig, side, "*", topic)
            await add_replica(rig, topic)
            await asyncio.sleep(5)
            assert rig.registration(topic).isr == (1,)
            await let_go()
            assert await seconds_until_in_sync(rig, topic) < 1

    rig.run(story)


@pytest.mark.parametrize("side", [LEADER, FOLLOWER])
def test_whoever_is_in_sync_and_whatever_is_not_listed_is_not_held_up(side: str) -> None:
    """A replica in sync counts against the quota, and goes on all the same."""
    rig = ReplicaRig(2, properties=QUICK_FETCHES)

    async def story() -> None:
        await rig.create_topic("t", [[1], [1, 2]])
        await rig.create_topic("u", [[1, 2]])
        await fill(rig, "t", 20)
        for broker in ("1", "2"):
            await throttle(rig, broker, side, 10_000)
        await list_replicas(rig, side, "*")
        await add_replica(rig)
        started = rig.loop.time()
        for _ in range(30):
            for topic, index in (("t", 1), ("u", 0)):
                assert (await rig.produce(1, topic, bytes(1_000), index=index)).error_code == 0
        assert rig.loop.time() - started < 3
        assert rig.ends("t")[2][1] < 5
        for _ in range(5):
            await asyncio.sleep(1)
            await rig.brokers[1].replicas.check_isrs()
        assert rig.registration("t", 1).isr == rig.registration("u").isr == (1, 2)
        assert rig.registration("t", 0).isr == (1,)

    rig.run(story)


@pytest.mark.parametrize("side", [LEADER, FOLLOWER])
def test_nobody_starves_among_the_throttled(side: str) -> None:
    rig = ReplicaRig(2, properties=QUICK_FETCHES)

    async def story() -> None:
        await rig.create_topic("t", [[1]] * 4)
        for index in range(4):
            await fill(rig, "t", 5, index)
        for broker in ("1", "2"):
            await throttle(rig, broker, side, 200_000)
        await list_replicas(rig, side, "*")
        started = rig.loop.time()
        for index in range(4):
            await add_replica(rig, "t", index)
        halves = []
        for index in range(4):
            await rig.until(lambda index=index: rig.ends("t", index)[2][1] >= 2)  # type: ignore[misc]
            halves.append(rig.loop.time() - started)
        for index in range(4):
            await seconds_until_in_sync(rig, "t", index)
        assert 8 < rig.loop.time() - started < 14
        assert max(halves) < 8

    rig.run(story)


def test_what_is_appended_to_a_partition_that_is_held_back_wakes_nobody() -> None:
    """Or its follower would ask in vain after every append."""
    rig = ReplicaRig(2, properties=QUICK_FETCHES)

    async def story() -> None:
        await rig.create_topic("t", [[1]])
        await fill(rig, "t", 20)
        await throttle(rig, "1", LEADER, 10_000)
        await list_replicas(rig, LEADER, "*")
        await add_replica(rig)
        await asyncio.sleep(2)
        session = next(iter(rig.brokers[1].fetch_sessions))
        before = session.epoch
        for _ in range(50):
            await fill(rig, "t", 1)
            await asyncio.sleep(0.02)
        assert session.epoch - before < 10

    rig.run(story)


def test_a_broker_that_starts_honours_what_is_on_record() -> None:
    rig = ReplicaRig(2, properties=QUICK_FETCHES)

    async def story() -> None:
        await rig.create_topic("t", [[1]], configs={f"{FOLLOWER}.replicas": "0:2"})
        await fill(rig, "t", 20)
        await throttle(rig, "2", FOLLOWER, 200_000)
        await rig.brokers[2].stop()
        await add_replica(rig)
        await rig.brokers[2].start()
        assert 8.5 < await seconds_until_in_sync(rig) < 12
        assert rig.brokers[2].replicas.throttles.rates()[1] > 100_000

    rig.run(story)


def test_a_rate_on_record_that_makes_no_sense_counts_as_not_set() -> None:
    rig = ReplicaRig(1)

    async def story() -> None:
        throttles = rig.brokers[1].replicas.throttles
        for side in (LEADER, FOLLOWER):
            await throttle(rig, ALL_BROKERS, side, 7)
            await throttle(rig, "1", side, -5)
        assert throttles.leader.limit == throttles.follower.limit == UNLIMITED
        for side in (LEADER, FOLLOWER):
            await throttle(rig, "1", side, None)
        assert throttles.leader.limit == throttles.follower.limit == 7

    rig.run(story)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_throttled_and_let_go_all_have_the_same_in_the_end(seed: int) -> None:
    """Rates, lists, leaders and processes come and go at random; nothing is lost and nobody stays behind."""
    draw = random.Random(seed)
    rig = ReplicaRig(3, seed=seed, properties=QUICK_FETCHES)
    topics = ("t", "u")

    async def happen() -> None:
        topic, broker = draw.choice(topics), draw.choice((1, 2, 3))
        isr = rig.registration(topic).isr
        match draw.randrange(7):
            case 0 | 1:
                await asyncio.sleep(draw.random())
            case 2:
                rate = draw.choice((None, 1_000, 100_000, 10_000_000))
                await throttle(rig, draw.choice((str(broker), ALL_BROKERS)), draw.choice((LEADER, FOLLOWER)), rate)
            case 3:
                replicas = draw.choice((None, "*", f"0:{broker}"))
                await list_replicas(rig, draw.choice((LEADER, FOLLOWER)), replicas, topic)
            case 4:
                await rig.elect(topic, draw.choice(isr), isr)
            case 5 if broker != rig.registration(topic).leader:
                await rig.change(topic, isr=[each for each in isr if each != broker])
            case _ if all(rig.registration(each).leader != broker for each in topics):
                for each in topics:
                    await rig.change(each, isr=[one for one in rig.registration(each).isr if one != broker])
                rig.brokers[broker].crash()
                await asyncio.sleep(draw.random())
                await rig.brokers[broker].start()
        if draw.random() < 0.7:
            await rig.produce(rig.registration(topic).leader, topic, bytes(20_000), timeout_ms=1_000)

    async def story() -> None:
        for topic in topics:
            await rig.create_topic(topic, [[1, 2, 3]])
        for _ in range(60):
            await happen()
        for side in (LEADER, FOLLOWER):
            for broker in ("1", "2", "3", ALL_BROKERS):
                await throttle(rig, broker, side, None)
        for topic in topics:
            await rig.until(lambda topic=topic: len(rig.registration(topic).isr) == 3)  # type: ignore[misc]
            await rig.until(lambda topic=topic: len(set(rig.ends(topic).values())) == 1)  # type: ignore[misc]
            held = [await rig.content(broker, topic) for broker in (1, 2, 3)]
            assert held[0] == held[1] == held[2]

    rig.run(story)
