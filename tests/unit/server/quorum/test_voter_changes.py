"""Voters that are added, removed, moved and replaced while the quorum works (KIP-853)."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.metadata.building import uuid
from tests.unit.server.quorum_rig import PORT, QuorumRig, Seat, setting, settings_in

from odradek.ids import Uuid
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from odradek.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestedPartitionData,
    RequestedTopicData,
)
from odradek.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from odradek.protocol.messages.update_raft_voter import KRaftVersionFeature, UpdateRaftVoterRequest
from odradek.protocol.messages.update_raft_voter import Listener as UpdatedListener
from odradek.values import replace


def add_request(seat: Seat, *, cluster_id: str = "rig", directory_id: Uuid | None = None) -> AddRaftVoterRequest:
    return AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=5000,
        voter_id=seat.node_id,
        voter_directory_id=directory_id or seat.directory_id,
        listeners=[Listener(name="CONTROLLER", host=seat.name, port=PORT)],
    )


def remove_request(seat: Seat) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(cluster_id="rig", voter_id=seat.node_id, voter_directory_id=seat.directory_id)


def voters_of(seat: Seat) -> list[int]:
    return [voter.node_id for voter in seat.quorum.voters]


async def begun(rig: QuorumRig) -> Seat:
    await rig.start()
    leader = await rig.active()
    await rig.bootstrap(leader)
    return leader


@pytest.mark.parametrize("seed", range(4))
def test_a_lone_voter_grows_to_three_and_survives_its_own_end(seed: int) -> None:
    rig = QuorumRig(1, seed=seed, static=False)

    async def test() -> None:
        first = await begun(rig)
        await rig.append(first, setting("a"))
        for node_id in (2, 3):
            seat = rig.observer(node_id, may_vote=True)
            await seat.start()
            await rig.agree()
            answer = await rig.ask(first, add_request(seat))
            assert (answer.error_code, answer.error_message) == (0, None)
        assert voters_of(first) == [1, 2, 3]
        await rig.append(first, setting("b"))
        await rig.agree()
        first.crash()
        leader = await rig.active()
        await rig.append(leader, setting("c"))
        await first.start()
        await rig.agree()
        assert voters_of(first) == [1, 2, 3]
        assert settings_in(first) == ["a", "b", "c"]

    rig.run(test)


def test_a_follower_is_removed_and_goes_on_as_an_observer() -> None:
    rig = QuorumRig(3, static=False)

    async def test() -> None:
        leader = await begun(rig)
        (gone, stays) = (seat for seat in rig.seats if seat is not leader)
        answer = await rig.ask(leader, remove_request(gone))
        assert answer.error_code == 0
        await rig.append(leader, setting("a"))
        await rig.agree()
        assert not gone.quorum.raft.is_voter
        assert voters_of(gone) == voters_of(leader) == sorted([leader.node_id, stays.node_id])
        leader.crash()
        await asyncio.sleep(5)
        assert not gone.quorum.is_active
        assert not stays.quorum.is_active  # One of two is no majority.

    rig.run(test)


@pytest.mark.parametrize("seed", range(3))
def test_a_leader_that_removes_itself_hands_over(seed: int) -> None:
    rig = QuorumRig(3, seed=seed, static=False)

    async def test() -> None:
        leader = await begun(rig)
        answer = await rig.ask(leader, remove_request(leader))
        assert answer.error_code == 0
        await asyncio.sleep(1)
        other = await rig.active()
        assert other is not leader
        await rig.append(other, setting("a"))
        await rig.agree()
        assert leader.leadership[-1] is None

    rig.run(test)


def test_what_is_refused() -> None:
    rig = QuorumRig(3, static=False)

    async def test() -> None:
        leader = await begun(rig)
        follower = next(seat for seat in rig.seats if seat is not leader)
        stranger = rig.observer(9, may_vote=True)

        async def code(seat: Seat, request: AddRaftVoterRequest | RemoveRaftVoterRequest) -> ErrorCode:
            return ErrorCode((await rig.ask(seat, request)).error_code)

        assert await code(follower, add_request(stranger)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await code(leader, add_request(stranger, cluster_id="x")) is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert await code(leader, add_request(follower)) is ErrorCode.DUPLICATE_VOTER
        assert await code(leader, add_request(stranger)) is ErrorCode.REQUEST_TIMED_OUT
        assert await code(leader, add_request(stranger, directory_id=Uuid(bytes(16)))) is ErrorCode.INVALID_REQUEST
        unnamed = add_request(stranger)
        unnamed.listeners[0].name = "OTHER"
        assert await code(leader, unnamed) is ErrorCode.INVALID_REQUEST
        await stranger.start()
        assert await code(leader, add_request(stranger, directory_id=uuid(4444))) is ErrorCode.REQUEST_TIMED_OUT
        assert await code(leader, remove_request(stranger)) is ErrorCode.VOTER_NOT_FOUND
        assert voters_of(leader) == [1, 2, 3]

    rig.run(test)


def test_static_voters_cannot_be_changed() -> None:
    rig = QuorumRig(3)

    async def test() -> None:
        leader = await begun(rig)
        stranger = rig.observer(9, may_vote=True)
        answer = await rig.ask(leader, add_request(stranger))
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "kraft.version feature is 0" in answer.error_message

    rig.run(test)


def test_a_voter_that_comes_back_with_another_disk_is_let_in_again() -> None:
    rig = QuorumRig(3, static=False)
    rig.settings = replace(rig.settings, auto_join=True)

    async def test() -> None:
        leader = await begun(rig)
        await rig.append(leader, setting("a"))
        lost = next(seat for seat in rig.seats if seat is not leader)
        lost.crash()
        lost.wipe()
        lost.directory_id = uuid(8888)
        lost.settings = rig.settings
        await lost.start()
        assert not lost.quorum.raft.is_voter
        await asyncio.sleep(15)
        assert lost.quorum.raft.is_voter
        await rig.agree()
        assert voters_of(leader) == [1, 2, 3]
        assert settings_in(lost) == ["a"]

    rig.run(test)


def test_a_voter_that_has_moved_is_found_again() -> None:
    rig = QuorumRig(3, static=False)

    async def test() -> None:
        leader = await begun(rig)
        moved = next(seat for seat in rig.seats if seat is not leader)
        request = UpdateRaftVoterRequest(
            cluster_id="rig",
            current_leader_epoch=leader.quorum.epoch,
            voter_id=moved.node_id,
            voter_directory_id=moved.directory_id,
            listeners=[UpdatedListener(name="CONTROLLER", host="elsewhere", port=1234)],
            kraft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
        )
        assert (await rig.ask(leader, request)).error_code == 0
        voter = leader.quorum.membership.voter(moved.node_id)
        assert voter is not None
        assert (voter.host, voter.port) == ("elsewhere", 1234)
        await asyncio.sleep(5)  # The voter sees what is said of it, and says what is so.
        voter = leader.quorum.membership.voter(moved.node_id)
        assert voter is not None
        assert (voter.host, voter.port) == (moved.name, PORT)
        request.voter_directory_id = uuid(1)
        assert (await rig.ask(leader, request)).error_code == ErrorCode.VOTER_NOT_FOUND
        request.current_leader_epoch -= 1
        assert (await rig.ask(leader, request)).error_code == ErrorCode.FENCED_LEADER_EPOCH

    rig.run(test)


def test_a_broker_that_fetches_by_routine_hears_of_new_voters() -> None:
    rig = QuorumRig(1, static=False)

    async def test() -> None:
        leader = await begun(rig)
        broker, newcomer = rig.observer(100), rig.observer(2, may_vote=True)
        await broker.start()
        await newcomer.start()
        await rig.agree()
        await rig.append(leader, setting("a"))
        await rig.agree()
        assert voters_of(broker) == [1]
        assert (await rig.ask(leader, add_request(newcomer))).error_code == 0
        await rig.agree()
        assert voters_of(broker) == [1, 2]

    rig.run(test)


def test_who_leads_and_how_far_the_others_are() -> None:
    rig = QuorumRig(3, static=False)

    async def test() -> None:
        leader = await begun(rig)
        broker = rig.observer(100)
        await broker.start()
        await rig.agree()
        await asyncio.sleep(1)
        request = DescribeQuorumRequest(
            topics=[
                RequestedTopicData(
                    topic_name="__cluster_metadata", partitions=[RequestedPartitionData(partition_index=0)]
                )
            ]
        )
        answer = await rig.ask(leader, request)
        (partition,) = answer.topics[0].partitions
        assert (partition.leader_id, partition.leader_epoch) == (leader.node_id, leader.quorum.epoch)
        assert [state.replica_id for state in partition.current_voters] == [1, 2, 3]
        assert [state.replica_id for state in partition.observers] == [100]
        ends = [state.log_end_offset for state in (*partition.current_voters, *partition.observers)]
        assert max(ends) - min(ends) <= 1  # An idle leader writes every half second.
        assert [node.node_id for node in answer.nodes] == [1, 2, 3]
        follower = next(seat for seat in rig.seats if seat is not leader)
        refused = await rig.ask(follower, request)
        assert refused.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    rig.run(test)


def test_static_voters_come_to_stand_in_the_log() -> None:
    rig = QuorumRig(3)

    async def test() -> None:
        leader = await begun(rig)
        changes = leader.quorum.voter_changes
        await asyncio.sleep(5)  # The others tell their directories.
        await changes.raise_kraft_version(1, validate_only=True)
        assert leader.quorum.kraft_version == 0
        await changes.raise_kraft_version(1, validate_only=False)
        await rig.append(leader, setting("a"))
        await rig.agree()
        for seat in rig.seats:
            assert seat.quorum.kraft_version == 1
            assert [voter.directory_id for voter in seat.quorum.voters] == [each.directory_id for each in rig.seats]
        newcomer = rig.observer(4, may_vote=True)
        rig.static_voters = ()
        await newcomer.start()
        await rig.agree()
        await asyncio.sleep(0.1)  # Its next fetch tells how far it is.
        assert (await rig.ask(leader, add_request(newcomer))).error_code == 0
        leader.crash()
        other = await rig.active()
        await leader.start()
        await rig.append(other, setting("b"))
        await rig.agree()
        assert voters_of(leader) == [1, 2, 3, 4]

    rig.run(test)


def test_a_voter_that_has_not_told_its_directory_keeps_the_quorum_static() -> None:
    rig = QuorumRig(3)

    async def test() -> None:
        leader = await begun(rig)
        missing = next(seat for seat in rig.seats if seat is not leader)
        missing.crash()
        other = next(seat for seat in rig.seats if seat not in (leader, missing))
        await asyncio.sleep(5)
        assert other.quorum.leader_id == leader.node_id
        leader.quorum.voter_changes._static_announced().pop(missing.node_id, None)
        with pytest.raises(KafkaError, match=f"voter {missing.node_id} has not told its own yet"):
            await leader.quorum.voter_changes.raise_kraft_version(1, validate_only=False)
        assert leader.quorum.kraft_version == 0

    rig.run(test)
