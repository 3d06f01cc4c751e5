"""Requests that are forged, nodes that belong elsewhere, disks that were lost or damaged: the quorum goes on."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.unit.server.quorum_rig import DIRECTORY, QuorumRig, Seat, setting, settings_in

from odradek.ids import METADATA_TOPIC_ID, ZERO_UUID, LeaderEpoch, NodeId, Offset
from odradek.metadata.raft import wire
from odradek.metadata.raft.snapshot import SnapshotId
from odradek.metadata.raft.voters import ReplicaKey
from odradek.metadata.records import FeatureLevelRecord, RemoveDelegationTokenRecord
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode
from odradek.server.quorum.log import BadMetadataLog


async def begun(rig: QuorumRig) -> Seat:
    leader = await rig.begun()
    await rig.append(leader, setting("a"))
    await rig.agree()
    return leader


def vote(seat: Seat, *, candidate: int, epoch: int, cluster_id: str = "rig", last: tuple[int, int] = (1, 1)) -> Message:
    return wire.vote_request(
        cluster_id,
        me=ReplicaKey(NodeId(candidate), ZERO_UUID),
        to=seat.voter,
        epoch=LeaderEpoch(epoch),
        last_epoch=LeaderEpoch(last[0]),
        end_offset=Offset(last[1]),
        pre_vote=False,
    )


def fetch(replica_id: int, *, epoch: int, offset: int, last_epoch: int, cluster_id: str = "rig") -> Message:
    return wire.fetch_request(
        cluster_id,
        me=ReplicaKey(NodeId(replica_id), ZERO_UUID),
        epoch=LeaderEpoch(epoch),
        end_offset=Offset(offset),
        last_epoch=LeaderEpoch(last_epoch),
        high_watermark=Offset(-1),
        max_wait_ms=0,
        max_bytes=1000,
    )


def test_forged_votes_leave_the_leader_where_it_is() -> None:
    rig = QuorumRig(3)

    async def test() -> None:
        leader = await begun(rig)
        epoch = leader.quorum.epoch

        async def answer(seat: Seat, request: Message) -> tuple[int, int | None]:
            response = await rig.ask(seat, request)
            return response.error_code, response.topics[0].partitions[0].error_code if response.topics else None

        for seat in rig.seats:
            assert await answer(seat, vote(seat, candidate=2 + seat.node_id % 2, epoch=epoch, cluster_id="other")) == (
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                None,
            )
            assert await answer(seat, vote(seat, candidate=55, epoch=epoch + 5)) == (
                0,
                ErrorCode.INCONSISTENT_VOTER_SET,
            )
            assert await answer(seat, vote(seat, candidate=seat.node_id, epoch=epoch + 5)) == (
                0,
                ErrorCode.INVALID_REQUEST,
            )
            assert await answer(seat, vote(seat, candidate=2, epoch=(1 << 31) - 1)) == (0, ErrorCode.INVALID_REQUEST)
        await asyncio.sleep(1)
        assert leader.quorum.is_active
        assert [seat.quorum.epoch for seat in rig.seats] == [epoch] * 3

    rig.run(test)


def test_a_forged_candidate_costs_an_election_at_most() -> None:
    rig = QuorumRig(3)

    async def test() -> None:
        leader = await begun(rig)
        for seat in rig.seats:
            if seat is not leader:
                candidate = next(other.node_id for other in rig.seats if other is not seat)
                await rig.ask(seat, vote(seat, candidate=candidate, epoch=leader.quorum.epoch + 7, last=(999, 9999)))
        await asyncio.sleep(3)
        other = await rig.active()
        await rig.append(other, setting("b"))
        await rig.agree()
        assert settings_in(leader) == ["a", "b"]

    rig.run(test)


def test_forged_fetches_commit_nothing() -> None:
    rig = QuorumRig(3)

    async def test() -> None:
        leader = await begun(rig)
        epoch, end_offset = leader.quorum.epoch, leader.quorum.next_offset
        others = [seat for seat in rig.seats if seat is not leader]

        async def code(request: Message) -> int:
            response = await rig.ask(leader, request)
            code: int = response.error_code or response.responses[0].partitions[0].error_code
            return code

        assert await code(fetch(2, epoch=epoch, offset=1, last_epoch=1, cluster_id="x")) == 104
        assert await code(fetch(2, epoch=epoch, offset=-1, last_epoch=1)) == ErrorCode.INVALID_REQUEST
        assert await code(fetch(2, epoch=epoch, offset=1, last_epoch=epoch + 1)) == ErrorCode.INVALID_REQUEST
        assert await code(fetch(2, epoch=epoch + 1, offset=1, last_epoch=1)) == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert await code(fetch(leader.node_id, epoch=epoch, offset=1, last_epoch=1)) == -1
        for seat in others:
            seat.crash()
        work = asyncio.ensure_future(rig.append(leader, setting("b")))
        await asyncio.sleep(0.1)
        ahead = await rig.ask(leader, fetch(others[0].node_id, epoch=epoch, offset=end_offset + 50, last_epoch=epoch))
        assert ahead.responses[0].partitions[0].diverging_epoch.epoch == epoch
        await rig.ask(leader, fetch(77, epoch=epoch, offset=end_offset + 1, last_epoch=epoch))
        await asyncio.sleep(0.1)
        assert not work.done()
        assert settings_in(leader) == ["a"]
        work.cancel()

    rig.run(test)


def test_requests_for_another_partition_are_refused() -> None:
    rig = QuorumRig(3)

    async def test() -> None:
        leader = await begun(rig)
        request = fetch(2, epoch=1, offset=0, last_epoch=0)
        request.topics[0].topic_id = b"x" * 16  # type: ignore[attr-defined]
        assert (await rig.ask(leader, request)).error_code == ErrorCode.INVALID_REQUEST
        snapshot = wire.fetch_snapshot_request(
            "rig",
            me=ReplicaKey(NodeId(2)),
            epoch=leader.quorum.epoch,
            snapshot_id=SnapshotId(Offset(1), LeaderEpoch(1)),
            position=0,
            max_bytes=100,
        )
        answer = await rig.ask(leader, snapshot)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.SNAPSHOT_NOT_FOUND
        snapshot.topics[0].name = "x"
        answer = await rig.ask(leader, snapshot)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        begin = wire.begin_request(
            "rig",
            me=leader.voter,
            to=leader.voter,
            epoch=LeaderEpoch(leader.quorum.epoch + 1),
            listener_name="CONTROLLER",
        )
        answer = await rig.ask(leader, begin)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
        assert leader.quorum.is_active
        assert METADATA_TOPIC_ID != b"x" * 16

    rig.run(test)


def test_a_voter_of_another_cluster_says_so_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    rig = QuorumRig(3)
    caplog.set_level(logging.WARNING)

    async def test() -> None:
        rig.seats[2].cluster_id = "elsewhere"
        leader = await rig.begun()
        await asyncio.sleep(5)
        assert leader.quorum.is_active
        assert rig.seats[2].quorum.image.features.metadata_version == 0
        assert "INCONSISTENT_CLUSTER_ID" in caplog.text
        (failure,) = rig.seats[2].failures[:1]
        assert "belong to cluster elsewhere" in str(failure)
        assert rig.seats[0].failures == rig.seats[1].failures == []

    rig.run(test)


def test_so_does_one_that_followed_the_leader_before() -> None:
    """Its quorum-state names a leader: others are asked, too, when that one says that it is a stranger."""
    rig = QuorumRig(3)

    async def test() -> None:
        leader = await begun(rig)
        moved = next(seat for seat in rig.seats if seat is not leader)
        moved.crash()
        moved.cluster_id = "elsewhere"
        await moved.start()
        await asyncio.sleep(5)
        (failure,) = moved.failures[:1]
        assert "belong to cluster elsewhere" in str(failure)
        assert leader.quorum.is_active

    rig.run(test)


@pytest.mark.parametrize("seed", range(4))
def test_a_static_voter_with_an_empty_disk_does_not_help_to_forget(seed: int) -> None:
    """One voter has everything, one lags, one lost its disk: without the first, nobody may lead."""
    rig = QuorumRig(3, seed=seed)

    async def test() -> None:
        leader = await begun(rig)
        lags, loses = (seat for seat in rig.seats if seat is not leader)
        lags.crash()
        await rig.append(leader, setting("committed"))
        leader.crash()
        loses.crash()
        loses.wipe()
        await lags.start()
        await loses.start()
        await asyncio.sleep(10)
        assert not lags.quorum.is_active
        assert not loses.quorum.is_active
        await leader.start()
        other = await rig.active()
        await rig.append(other, setting("more"))
        await rig.agree()
        assert settings_in(loses) == ["a", "committed", "more"]

    rig.run(test)


def test_a_damaged_quorum_state_stops_one_voter_and_nobody_else() -> None:
    rig = QuorumRig(3)

    async def test() -> None:
        leader = await begun(rig)
        leader.crash()
        leader.put(f"{DIRECTORY}/quorum-state", b'{"leaderEpoch": 7')
        with pytest.raises(BadMetadataLog, match="quorum-state cannot be read"):
            await leader.start()
        leader._end()
        other = await rig.active()
        await rig.append(other, setting("b"))

    rig.run(test)


@pytest.mark.parametrize(
    "record",
    [
        FeatureLevelRecord(name="metadata.version", feature_level=31),
        RemoveDelegationTokenRecord(token_id="t"),
    ],
)
def test_a_record_that_followers_do_not_understand_stops_them_with_its_name(record: Message) -> None:
    rig = QuorumRig(3)

    async def test() -> None:
        leader = await begun(rig)
        broker = rig.observer(100)
        await broker.start()
        await rig.agree()
        work = asyncio.ensure_future(rig.append(leader, record))
        await asyncio.sleep(2)
        work.cancel()
        (failure,) = broker.failures[:1]
        assert "31" in str(failure) or "DelegationToken" in str(failure)
        assert broker.quorum.image.features.metadata_version <= 31

    rig.loop.failures.clear()
    rig.loop.run_until_complete(test())
    for seat in rig.seats:
        if seat.is_up:
            seat._end()
