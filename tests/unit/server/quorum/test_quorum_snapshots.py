"""Followers that are too far behind load a snapshot; what they know afterwards is what everybody knows."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.server.quorum_rig import DIRECTORY, SETTINGS, QuorumRig, Seat, setting, settings_in

from odradek.metadata.records import RemoveTopicRecord, TopicRecord
from odradek.server.quorum.log import BadMetadataLog
from odradek.storage.checkpoints import checkpoint_bytes
from odradek.values import replace

SMALL = replace(
    SETTINGS,
    segment_bytes=2000,
    max_bytes_between_snapshots=1500,
    max_retention_bytes=4000,
    fetch_snapshot_max_bytes=700,
)


def files(rig: QuorumRig, number: int, suffix: str) -> list[str]:
    seat = rig.seats[number]
    return [name for name in seat.world.disk.list(DIRECTORY) if name.endswith(suffix)]


async def make_snapshots(rig: QuorumRig, leader: Seat) -> None:
    """Forty settings, enough for some snapshots."""
    for number in range(40):
        await rig.append(leader, setting(f"s{number:02}"))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("static", [True, False])
def test_a_voter_that_was_away_for_long_loads_a_snapshot(seed: int, static: bool) -> None:
    rig = QuorumRig(3, seed=seed, static=static, settings=SMALL)

    async def test() -> None:
        leader = await rig.begun()
        away = next(seat for seat in rig.seats if seat is not leader)
        await rig.agree()
        away.crash()
        for number in range(60):
            await rig.append(leader, setting(f"s{number:02}"), setting("often", str(number)))
        assert leader.quorum.log.log_start_offset > 0
        await away.start()
        before = len(away.committed)
        await rig.agree()
        assert settings_in(away) == settings_in(leader)
        assert len(away.committed) > before
        assert (2, "t") in away.committed[before][1].configs
        await rig.append(leader, setting("after"))
        await rig.agree()
        away.crash("power")
        await away.start()
        await rig.agree()
        assert "after" in settings_in(away)

    rig.run(test)


def test_a_new_observer_begins_with_the_newest_snapshot() -> None:
    rig = QuorumRig(3, settings=SMALL)

    async def test() -> None:
        leader = await rig.begun()
        await make_snapshots(rig, leader)
        broker = rig.observer(100)
        await broker.start()
        await broker.quorum.caught_up()
        assert broker.quorum.log.log_start_offset > 0
        assert len(settings_in(broker)) == 40

    rig.run(test)


def test_an_observer_has_caught_up_with_a_snapshot_behind_which_there_is_nothing() -> None:
    rig = QuorumRig(3, settings=SMALL)

    async def test() -> None:
        leader = await rig.begun()
        await make_snapshots(rig, leader)
        await leader.quorum.write_snapshot()
        end_offset = leader.quorum.log.log_end_offset
        broker = rig.observer(100)
        await broker.start()
        async with asyncio.timeout(10):
            await broker.quorum.caught_up()
        assert broker.quorum.log.log_start_offset == end_offset == leader.quorum.log.log_end_offset

    rig.run(test)


def test_epochs_from_before_a_snapshot_that_a_power_loss_brings_back_are_not_believed() -> None:
    """The follower would be asked to cut what is committed, and would not start any more."""
    rig = QuorumRig(3, settings=SMALL)

    async def test() -> None:
        first = await rig.begun()
        broker = rig.observer(100)
        await broker.start()
        await broker.quorum.caught_up()
        await broker.stop()
        old_epochs = checkpoint_bytes([f"{first.quorum.log.last_epoch} 0"])
        await rig.agree()
        first.crash()
        leader = await rig.active()
        await make_snapshots(rig, leader)
        await leader.quorum.write_snapshot()
        await broker.start()
        await broker.quorum.caught_up()
        metadata_log = broker.quorum.log
        assert metadata_log.log_start_offset == metadata_log.log_end_offset == leader.quorum.log.log_end_offset
        broker.crash()
        broker.put(f"{DIRECTORY}/leader-epoch-checkpoint", old_epochs)
        await broker.start()
        assert broker.quorum.log.last_epoch == leader.quorum.log.last_epoch
        await rig.append(leader, setting("after"))
        await rig.agree(leader, broker)
        assert "after" in settings_in(broker)

    rig.run(test)


def test_what_was_deleted_meanwhile_is_told() -> None:
    rig = QuorumRig(3, settings=SMALL)

    async def test() -> None:
        leader = await rig.begun()
        await rig.append(leader, TopicRecord(name="gone", topic_id=b"g" * 16))
        away = next(seat for seat in rig.seats if seat is not leader)
        await rig.agree()
        away.crash()
        await rig.append(leader, RemoveTopicRecord(topic_id=b"g" * 16))
        for number in range(40):
            await rig.append(leader, TopicRecord(name=f"new{number}", topic_id=bytes([number]) * 16))
        away.committed.clear()
        await away.start()
        await rig.agree()
        assert sorted(away.quorum.image.topics.by_name) == sorted(leader.quorum.image.topics.by_name)

    rig.run(test)


def test_a_damaged_snapshot_of_the_leader_harms_nobody() -> None:
    rig = QuorumRig(3, settings=SMALL)

    async def test() -> None:
        leader = await rig.begun()
        await make_snapshots(rig, leader)
        await asyncio.sleep(1)
        newest = leader.quorum.log.newest_snapshot
        assert newest is not None
        path = f"{DIRECTORY}/{newest.file_name}"
        content = bytearray(leader.world.disk.read_file(path))
        content[200] ^= 0xFF
        leader.world.disk.write_file(path, bytes(content))
        broker = rig.observer(100)
        await broker.start()
        await asyncio.sleep(3)
        assert settings_in(broker) == []
        assert files(rig, 3, ".checkpoint") == []
        assert leader.quorum.is_active
        leader.crash()
        other = await rig.active()
        await rig.append(other, setting("z"))
        await rig.agree(other, broker)
        assert len(settings_in(broker)) == 41

    rig.run(test)


def test_a_voter_whose_snapshot_is_damaged_says_so_and_the_others_go_on() -> None:
    rig = QuorumRig(3, settings=SMALL)

    async def test() -> None:
        leader = await rig.begun()
        await make_snapshots(rig, leader)
        await rig.agree()
        await asyncio.sleep(1)
        broken = next(seat for seat in rig.seats if seat is not leader)
        names = [name for name in broken.world.disk.list(DIRECTORY) if name.endswith(".checkpoint")]
        broken.crash()
        for name in names:
            broken.put(f"{DIRECTORY}/{name}", b"rubbish")
        with pytest.raises(BadMetadataLog, match="no snapshot that is whole"):
            await broken.start()
        broken._end()
        await rig.append(leader, setting("z"))
        assert leader.quorum.is_active

    rig.run(test)
