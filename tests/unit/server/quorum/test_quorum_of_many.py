"""Three voters agree: one leads, the others follow with the same image, and another leads when it is gone."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.metadata.building import uuid
from tests.unit.server.quorum_rig import SETTINGS, QuorumRig, setting, settings_in

from odradek.ids import NodeId
from odradek.metadata.records import RegisterBrokerRecord
from odradek.values import replace


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("static", [True, False])
def test_three_voters_elect_one_and_share_an_image(seed: int, static: bool) -> None:
    rig = QuorumRig(3, seed=seed, static=static)

    async def test() -> None:
        await rig.start()
        leader = await rig.active(within_s=2)
        assert leader.leadership == [leader.quorum.epoch]
        await rig.bootstrap(leader)
        await rig.append(leader, setting("a"))
        assert settings_in(leader) == ["a"]
        await rig.agree(within_s=1)
        assert sum(seat.quorum.is_active for seat in rig.seats) == 1

    rig.run(test)


@pytest.mark.parametrize("seed", range(6))
def test_a_killed_leader_is_replaced_within_tens_of_milliseconds(seed: int) -> None:
    rig = QuorumRig(3, seed=seed)

    async def test() -> None:
        leader = await rig.begun()
        await rig.append(leader, setting("a"))
        await asyncio.sleep(1)
        leader.crash()
        began = rig.loop.time()
        other = await rig.active()
        assert rig.loop.time() - began < 0.5
        assert settings_in(other) == ["a"]
        await rig.append(other, setting("b"))
        await leader.start()
        await rig.agree()
        assert settings_in(leader) == ["a", "b"]

    rig.run(test)


@pytest.mark.parametrize("how", ["killed", "held"])
def test_with_early_elections_switched_off_a_lost_leader_is_missed_after_the_fetch_timeout(how: str) -> None:
    """As by the voters of Apache Kafka."""
    rig = QuorumRig(3, settings=replace(SETTINGS, early_elections=False))

    async def test() -> None:
        leader = await rig.begun()
        await asyncio.sleep(5)
        if how == "killed":
            leader.crash()
        else:
            assert leader.life is not None
            leader.life.held = []
        began = rig.loop.time()
        await rig.active()
        assert 1.5 < rig.loop.time() - began < 4

    rig.run(test)


def test_the_end_of_the_leaders_process_is_told_and_a_reset_is_not() -> None:
    rig = QuorumRig(3)

    async def test() -> None:
        leader = await rig.begun()
        told: list[int] = []
        for seat in rig.seats:
            seat.quorum.on_leader_ended = told.append
        for wire in rig.internet.open_wires():
            wire.reset()
        await asyncio.sleep(2)
        assert told == []
        leader = await rig.active()
        leader.crash()
        await rig.active()
        await asyncio.sleep(0.2)
        assert told
        assert set(told) == {leader.node_id}

    rig.run(test)


def test_a_follower_that_comes_to_lead_writes_records_in_the_versions_of_the_cluster() -> None:
    rig = QuorumRig(3)

    async def test() -> None:
        leader = await rig.begun()
        await rig.agree()
        leader.crash()
        other = await rig.active()
        record = RegisterBrokerRecord(
            broker_id=7,
            incarnation_id=uuid(7),
            broker_epoch=7,
            end_points=[],
            features=[],
            rack=None,
            log_dirs=[uuid(8)],
        )
        await rig.append(other, record)
        await rig.agree()
        for seat in rig.seats:
            if seat.is_up:
                assert seat.image.cluster.brokers[NodeId(7)].log_dirs == (uuid(8),)

    rig.run(test)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("how", ["killed", "held"])
def test_an_observer_finds_the_next_leader_about_as_soon_as_the_voters_do(seed: int, how: str) -> None:
    rig = QuorumRig(3, seed=seed)

    async def test() -> None:
        broker = rig.observer(100)
        leader = await rig.begun()
        await rig.agree()
        assert broker.quorum.leader_address == (leader.name, 9093)
        if how == "killed":
            leader.crash()
        else:
            assert leader.life is not None
            leader.life.held = []
        began = rig.loop.time()
        other = await rig.active()
        await rig.append(other, setting("a"))
        await rig.agree(other, broker)
        assert rig.loop.time() - began < (0.6 if how == "killed" else 1.2)
        assert broker.quorum.leader_id == other.node_id

    rig.run(test)


@pytest.mark.parametrize("may_vote", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_who_may_become_a_voter_syncs_what_it_fetches_and_a_broker_fetches_it_again(seed: int, may_vote: bool) -> None:
    rig = QuorumRig(3, seed=seed, static=False)

    async def test() -> None:
        follower = rig.observer(100, may_vote=may_vote)
        leader = await rig.begun()
        await rig.agree()
        before = len(rig.trace.lines)
        for number in range(20):
            await rig.append(leader, setting(f"s{number}"))
        await rig.agree()
        syncs = [line for line in rig.trace.lines[before:] if "c100 " in line and "sync " in line and ".log" in line]
        assert bool(syncs) is may_vote
        follower.crash("power")
        await follower.start()
        await follower.quorum.caught_up()
        assert len(settings_in(follower)) == 20

    rig.run(test)


def test_an_observer_has_caught_up_with_all_that_is_committed_though_it_gets_that_in_pieces() -> None:
    """One that registered after the first piece did not know yet which directories it had."""
    rig = QuorumRig(3, settings=replace(SETTINGS, fetch_max_bytes=1))

    async def test() -> None:
        leader = await rig.begun()
        for number in range(20):
            await rig.append(leader, setting(f"s{number}"))
        broker = rig.observer(100)
        await broker.start()
        await broker.quorum.caught_up()
        assert len(settings_in(broker)) == 20

    rig.run(test)


@pytest.mark.parametrize("may_vote", [False, True])
def test_a_follower_on_a_full_disk_waits_for_space(may_vote: bool) -> None:
    rig = QuorumRig(3)

    async def test() -> None:
        broker = rig.observer(100)
        leader = await rig.begun()
        await rig.agree()
        full = next(seat for seat in rig.seats if seat is not leader) if may_vote else broker
        full.device.capacity = full.device.used
        for number in range(20):
            await rig.append(leader, setting(f"s{number}", "x" * 500))
        await asyncio.sleep(2)
        assert settings_in(full) == []
        full.device.capacity = 1 << 40
        await rig.agree()
        assert len(settings_in(full)) == 20
        assert full.failures == []

    rig.run(test)


@pytest.mark.parametrize("seed", range(4))
def test_a_leader_on_a_full_disk_gives_way(seed: int) -> None:
    rig = QuorumRig(3, seed=seed)

    async def test() -> None:
        leader = await rig.begun()
        await rig.agree()
        leader.device.capacity = leader.device.used
        await asyncio.sleep(3)
        other = await rig.active()
        assert other is not leader
        await rig.append(other, setting("a"))
        await asyncio.sleep(3)
        assert not leader.quorum.is_active
        leader.device.capacity = 1 << 40
        await rig.agree()
        assert settings_in(leader) == ["a"]
        assert leader.failures == []

    rig.run(test)


def test_leaders_that_are_slow_one_after_another_are_given_more_time() -> None:
    rig = QuorumRig(3)

    async def test() -> None:
        leader = await rig.begun()
        epochs = [leader.quorum.epoch]
        for _ in range(12):
            assert leader.life is not None
            leader.life.held = []
            await asyncio.sleep(0.8)
            rig.loop.go_on(leader.life)
            leader = await rig.active()
            await asyncio.sleep(0.3)
            epochs.append(leader.quorum.epoch)
        assert len(set(epochs[-4:])) == 1, epochs

    rig.run(test)
