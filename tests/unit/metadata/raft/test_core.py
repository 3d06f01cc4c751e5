"""Replicas of a quorum, as pure cores: who leads, what counts as committed, and what is never promised twice."""

from __future__ import annotations

import dataclasses

import pytest
from tests.unit.metadata.building import uuid
from tests.unit.metadata.raft.replicas import CLUSTER, Cluster, Replica

from odradek.ids import NO_NODE, ZERO_UUID, LeaderEpoch, NodeId, Offset
from odradek.metadata.raft import wire
from odradek.metadata.raft.amnesia import Amnesia
from odradek.metadata.raft.control_records import recorded_voters
from odradek.metadata.raft.electing import MAX_EPOCH_JUMP
from odradek.metadata.raft.quorum_state import QuorumState
from odradek.metadata.raft.snapshot import SnapshotId
from odradek.metadata.raft.state import TRANSITIONS, Role
from odradek.metadata.raft.voters import ReplicaKey, Voter
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.control_records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from odradek.protocol.messages.vote import VoteRequest, VoteResponse
from odradek.values import replace

ME = Voter(NodeId(1), "localhost", 9093, uuid(200))


def lone(*, dynamic: bool = False, state: QuorumState | None = None, me: Voter = ME) -> Replica:
    voters = (ME,) if dynamic else (dataclasses.replace(ME, directory_id=ZERO_UUID),)
    return Replica(me, voters, dynamic=dynamic, state=state)


def records(replica: Replica) -> list[str]:
    return [type(message).__name__ for message in replica.log.messages]


def elected(cluster: Cluster) -> Replica:
    cluster.begin()
    cluster.pass_time(500)
    leader = cluster.leader
    assert leader is not None
    return leader


def ask(
    replica: Replica,
    candidate: int,
    *,
    epoch: int,
    pre_vote: bool = False,
    last: tuple[int, int] = (0, 0),
    to: Voter | None = None,
    now_ms: int = 0,
) -> tuple[bool, ErrorCode]:
    request = wire.vote_request(
        CLUSTER,
        me=ReplicaKey(NodeId(candidate), uuid(max(candidate, 0))),
        to=to or replica.me,
        epoch=LeaderEpoch(epoch),
        last_epoch=LeaderEpoch(last[0]),
        end_offset=Offset(last[1]),
        pre_vote=pre_vote,
    )
    response = replica.raft.vote_asked(request, now_ms)
    replica.settle()
    assert response.error_code == 0
    partition = response.topics[0].partitions[0]
    return partition.vote_granted, ErrorCode(partition.error_code)


# --- alone ------------------------------------------------------------------------------------------------------------


def test_a_static_quorum_of_one_only_tells_the_leader() -> None:
    replica = lone()
    replica.raft.begin(0)
    replica.settle()
    assert records(replica) == ["LeaderChangeMessage"]
    assert replica.state == QuorumState(leader_id=NodeId(1), leader_epoch=LeaderEpoch(1))
    assert replica.raft.high_watermark == 1
    assert replica.raft.next_due_ms is None


@pytest.mark.parametrize(("seen", "last_epoch", "epoch"), [(0, 0, 1), (4, 3, 5), (3, 9, 10)])
def test_the_epoch_is_one_that_neither_the_file_nor_the_log_has_seen(seen: int, last_epoch: int, epoch: int) -> None:
    replica = lone(state=QuorumState(leader_epoch=LeaderEpoch(seen)))
    if last_epoch:
        replica.log.append(last_epoch)
    replica.begin().begin(0)
    assert replica.raft.epoch == epoch


def test_the_first_leader_of_a_dynamic_quorum_records_its_voters() -> None:
    replica = lone(dynamic=True)
    replica.raft.begin(0)
    replica.settle()
    assert records(replica) == ["LeaderChangeMessage", "KRaftVersionRecord", "VotersRecord"]
    _, version, voters = replica.log.messages
    assert isinstance(version, KRaftVersionRecord)
    assert version.kraft_version == 1
    assert isinstance(voters, VotersRecord)
    assert recorded_voters(voters) == (ME,)


def test_later_leaders_record_them_only_when_their_address_changed() -> None:
    replica = lone(dynamic=True)
    replica.raft.begin(0)
    replica.settle()
    replica.begin().begin(0)
    replica.settle()
    assert records(replica)[3:] == ["LeaderChangeMessage"]
    replica.me = dataclasses.replace(ME, port=9999)
    replica.begin().begin(0)
    replica.settle()
    assert records(replica)[4:] == ["LeaderChangeMessage", "VotersRecord"]


# --- elections --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_one_of_many_is_elected_and_all_follow(count: int) -> None:
    cluster = Cluster(count)
    leader = elected(cluster)
    roles = [replica.raft.role for replica in cluster.replicas.values()]
    assert roles.count(Role.LEADER) == 1
    assert roles.count(Role.FOLLOWER) == count - 1
    assert {replica.raft.epoch for replica in cluster.replicas.values()} == {leader.raft.epoch}
    change = leader.log.messages[0]
    assert isinstance(change, LeaderChangeMessage)
    assert len(change.voters) == count
    assert len(change.granting_voters) > count // 2
    cluster.pass_time(20)
    assert {replica.raft.high_watermark for replica in cluster.replicas.values()} == {1}


def test_a_leader_that_is_gone_is_replaced_and_follows_when_it_is_back() -> None:
    cluster = Cluster()
    first = elected(cluster)
    cluster.down.append(first.me.node_id)
    cluster.pass_time(300)
    second = cluster.leader
    assert second is not None
    assert second is not first
    assert second.raft.epoch > first.raft.epoch
    cluster.down.clear()
    cluster.pass_time(3000)
    assert first.raft.role is Role.FOLLOWER
    assert first.raft.leader_id == second.me.node_id
    assert first.log.epochs == second.log.epochs


def test_a_follower_that_alone_cannot_reach_the_leader_changes_nothing() -> None:
    cluster = Cluster()
    leader = elected(cluster)
    (lonely, *_) = (each for each in cluster.replicas.values() if each is not leader)
    ends = {lonely.me.node_id, leader.me.node_id}
    cluster.drop = lambda source, target: {source, target} == ends
    epoch = leader.raft.epoch
    cluster.pass_time(10_000)
    assert cluster.leader is leader
    assert [replica.raft.epoch for replica in cluster.replicas.values()] == [epoch] * 3


def test_a_leader_without_its_majority_resigns() -> None:
    cluster = Cluster()
    leader = elected(cluster)
    cluster.drop = lambda source, target: leader.me.node_id in (source, target)
    cluster.pass_time(3500)
    assert not leader.raft.is_leader
    assert leader.raft.leader_id == NO_NODE
    assert cluster.leader is not None


def test_a_leader_that_resigns_names_its_successors() -> None:
    cluster = Cluster()
    leader = elected(cluster)
    leader.raft.resign(cluster.now_ms)
    cluster.pass_time(20)
    assert cluster.leader is not None
    assert cluster.leader is not leader
    assert ask(leader, 9, epoch=leader.raft.epoch) == (False, ErrorCode.INCONSISTENT_VOTER_SET)


def test_the_longest_log_wins() -> None:
    cluster = Cluster()
    leader = elected(cluster)
    followers = [each for each in cluster.replicas.values() if each is not leader]
    leader.log.append(leader.raft.epoch)
    cluster.fetch_once(followers[0])
    cluster.down.append(leader.me.node_id)
    cluster.pass_time(1000)
    assert cluster.leader is followers[0]


def test_a_leader_that_resigned_can_be_elected_again_by_who_has_not_heard_of_it() -> None:
    cluster = Cluster()
    leader = elected(cluster)
    others = [each.me.node_id for each in cluster.replicas.values() if each is not leader]
    cluster.drop = lambda source, target: leader.me.node_id in (source, target)
    cluster.down = others
    cluster.pass_time(4000)
    assert not leader.raft.is_leader
    cluster.down = others[:1]
    cluster.drop = lambda source, target: False
    cluster.pass_time(5000)
    assert cluster.leader is not None


def test_who_led_a_new_cluster_has_nothing_to_remember() -> None:
    cluster = Cluster()
    leader = elected(cluster)
    cluster.pass_time(20)
    assert leader.raft.amnesia is None
    assert not any(replica.raft.amnesia or replica.amnesia for replica in cluster.replicas.values())


# --- votes ------------------------------------------------------------------------------------------------------------


def voter(**changes: object) -> Replica:
    replica = Cluster(3)[1]
    replica.state = QuorumState(**changes) if changes else None  # type: ignore[arg-type]
    replica.begin().begin(0)
    return replica


def test_a_vote_is_given_once_an_epoch_also_after_a_restart() -> None:
    replica = voter()
    assert ask(replica, 2, epoch=1) == (True, ErrorCode.NONE)
    assert ask(replica, 3, epoch=1) == (False, ErrorCode.NONE)
    assert ask(replica, 2, epoch=1) == (True, ErrorCode.NONE)
    assert replica.state == QuorumState(leader_epoch=LeaderEpoch(1), voted_id=NodeId(2), voted_directory_id=uuid(2))
    replica.begin().begin(0)
    assert ask(replica, 3, epoch=1) == (False, ErrorCode.NONE)
    assert ask(replica, 2, epoch=1) == (True, ErrorCode.NONE)
    assert ask(replica, 3, epoch=2) == (True, ErrorCode.NONE)


def test_nobody_else_gets_a_vote_in_an_epoch_that_has_a_leader() -> None:
    replica = voter(leader_id=NodeId(2), leader_epoch=LeaderEpoch(4))
    assert replica.raft.role is Role.FOLLOWER
    assert ask(replica, 3, epoch=4) == (False, ErrorCode.NONE)
    assert ask(replica, 3, epoch=3) == (False, ErrorCode.FENCED_LEADER_EPOCH)


def test_who_led_an_epoch_does_not_help_another_in_it() -> None:
    replica = voter(leader_id=NodeId(1), leader_epoch=LeaderEpoch(4))
    assert ask(replica, 3, epoch=4) == (False, ErrorCode.NONE)
    assert ask(replica, 3, epoch=5) == (True, ErrorCode.NONE)


def test_a_log_that_is_behind_gets_no_vote() -> None:
    replica = voter(leader_epoch=LeaderEpoch(3))
    replica.log.append(2)
    replica.log.append(3)
    assert ask(replica, 2, epoch=4, last=(2, 9)) == (False, ErrorCode.NONE)
    assert ask(replica, 2, epoch=4, last=(3, 1)) == (False, ErrorCode.NONE)
    assert ask(replica, 2, epoch=4, last=(3, 2)) == (True, ErrorCode.NONE)


def test_a_pre_vote_promises_nothing() -> None:
    replica = voter(leader_epoch=LeaderEpoch(3))
    assert ask(replica, 2, epoch=3, pre_vote=True) == (True, ErrorCode.NONE)
    assert ask(replica, 3, epoch=3, pre_vote=True) == (True, ErrorCode.NONE)
    assert replica.raft.epoch == 3
    assert replica.raft.voted is None


def test_who_does_not_know_yet_that_it_is_a_voter_helps_to_replace_a_leader_that_is_gone() -> None:
    voters = Cluster(3, dynamic=True).voters
    replica = Replica(replace(voters[0], node_id=NodeId(4), directory_id=uuid(4)), voters, dynamic=True)
    replica.state = QuorumState(leader_id=NodeId(2), leader_epoch=LeaderEpoch(3))
    replica.begin().begin(0)
    assert not replica.raft.is_voter
    replica.raft.fetch_accepted(Offset(0), 0)
    assert ask(replica, 3, epoch=3, pre_vote=True) == (False, ErrorCode.NONE)
    replica.raft.doubt_leader(10)
    assert ask(replica, 3, epoch=3, pre_vote=True, now_ms=10) == (True, ErrorCode.NONE)
    replica.raft.fetch_accepted(Offset(0), 20)
    assert ask(replica, 3, epoch=3, pre_vote=True, now_ms=20) == (False, ErrorCode.NONE)


def test_a_voter_that_has_forgotten_everything_waits_for_a_leader() -> None:
    replica = voter()
    assert replica.raft.amnesia is not None
    assert ask(replica, 2, epoch=7, last=(6, 40)) == (False, ErrorCode.NONE)
    assert ask(replica, 2, epoch=8, last=(0, 0)) == (False, ErrorCode.NONE)


def test_a_voter_does_not_forget_at_its_second_start_that_it_has_forgotten() -> None:
    replica = voter()
    assert ask(replica, 2, epoch=7, last=(6, 40)) == (False, ErrorCode.NONE)
    for epoch in (8, 9):
        assert replica.state == QuorumState(leader_epoch=LeaderEpoch(epoch - 1))
        replica.begin().begin(0)
        assert ask(replica, 2, epoch=epoch, last=(6, 40)) == (False, ErrorCode.NONE)
        assert ask(replica, 3, epoch=epoch, last=(0, 0), pre_vote=True) == (False, ErrorCode.NONE)
        assert replica.raft.next_due_ms is None  # It does not stand either.


def test_it_remembers_before_it_promises() -> None:
    replica = Cluster(3)[1]
    replica.raft.begin(0)
    ready = replica.raft.take()
    assert ready is not None
    assert (ready.amnesia, ready.state) == (Amnesia(), None)


def following(replica: Replica, *, epoch: int, leader: int = 2) -> None:
    voter_of = {each.node_id: each for each in replica.membership.voters}
    request = wire.begin_request(
        CLUSTER,
        me=voter_of[NodeId(leader)],
        to=replica.me,
        epoch=LeaderEpoch(epoch),
        listener_name="CONTROLLER",
    )
    assert replica.raft.epoch_begun(request, 0).error_code == 0
    assert replica.raft.leader_id == leader


def test_a_leader_of_the_current_epoch_brings_it_up_to_date() -> None:
    replica = voter()
    following(replica, epoch=5)
    replica.log.epochs = [1, 4]
    replica.raft.fetch_accepted(Offset(2), 0)  # What the leader knew to be committed before it led.
    assert replica.raft.amnesia is not None
    replica.log.append(5)
    replica.raft.fetch_accepted(Offset(4), 0)
    assert replica.raft.amnesia is not None
    replica.log.append(5)
    replica.raft.fetch_accepted(Offset(4), 0)
    replica.settle()
    assert replica.raft.amnesia is None
    assert replica.amnesia is None
    replica.begin().begin(0)
    assert ask(replica, 3, epoch=6, last=(5, 4)) == (True, ErrorCode.NONE)


def test_a_snapshot_that_is_behind_brings_nothing_back() -> None:
    replica = voter()
    following(replica, epoch=5)
    replica.log.epochs = [5, 5]
    assert replica.raft.snapshot_accepted(Offset(2), 0)
    assert replica.raft.high_watermark == 2
    assert ask(replica, 3, epoch=6, last=(5, 2)) == (False, ErrorCode.NONE)


def test_an_empty_log_is_believed_until_somebody_has_something() -> None:
    """Three voters of which one lost its disk and one was never there: they do not begin anew."""
    cluster = Cluster()
    leader = elected(cluster)
    lost, late = (each for each in cluster.replicas.values() if each is not leader)
    for each in (lost, late):
        each.state, each.amnesia = None, None
        each.log.epochs.clear()
        each.log.messages.clear()
        each.begin().begin(cluster.now_ms)
    leader.begin().begin(cluster.now_ms)
    assert ask(lost, leader.me.node_id, epoch=leader.raft.epoch, last=(1, 1), pre_vote=True) == (False, ErrorCode.NONE)
    assert ask(late, leader.me.node_id, epoch=leader.raft.epoch, last=(1, 1), pre_vote=True) == (False, ErrorCode.NONE)
    cluster.pass_time(20_000)
    assert not lost.raft.is_leader
    assert not late.raft.is_leader


@pytest.mark.parametrize("fetched", [0, 1])
def test_a_quorum_whose_first_leader_is_struck_at_once_begins_all_the_same(fetched: int) -> None:
    """Nothing was committed yet, so nobody was told so; one of three is away, and all who were there restart."""
    cluster = Cluster()
    cluster.begin()
    cluster.down.append(3)
    for _ in range(200):
        cluster.pass_time(5, fetching=False)
        if cluster.leader is not None:
            break
    leader = cluster.leader
    assert leader is not None
    other = cluster[3 - leader.me.node_id]
    other.log.epochs += leader.log.epochs[:fetched]
    other.log.messages += leader.log.messages[:fetched]
    for each in (leader, other):
        each.begin().begin(cluster.now_ms)
    cluster.pass_time(3000)
    assert cluster.leader is not None
    assert cluster.leader.raft.high_watermark > 0


def test_who_voted_for_the_first_leader_helps_it_again_though_it_has_not_heard_of_its_election() -> None:
    replica = voter()
    assert ask(replica, 2, epoch=1) == (True, ErrorCode.NONE)
    replica.begin().begin(0)
    assert ask(replica, 3, epoch=2, last=(1, 1), pre_vote=True) == (False, ErrorCode.NONE)
    assert ask(replica, 2, epoch=2, last=(1, 1)) == (True, ErrorCode.NONE)


def test_a_first_leader_that_was_struck_before_it_could_note_that_it_leads_nothing_lost() -> None:
    cluster = Cluster()
    leader = elected(cluster)
    leader.amnesia = Amnesia()
    leader.begin().begin(cluster.now_ms)
    leader.settle()
    assert leader.raft.amnesia is None
    assert leader.amnesia is None


@pytest.mark.parametrize(
    ("candidate", "epoch", "last", "error"),
    [
        (2, 5, (5, 1), ErrorCode.INVALID_REQUEST),
        (2, 5, (-1, 1), ErrorCode.INVALID_REQUEST),
        (2, 5, (1, -1), ErrorCode.INVALID_REQUEST),
        (-1, 5, (1, 1), ErrorCode.INVALID_REQUEST),
        (1, 5, (1, 1), ErrorCode.INVALID_REQUEST),
        (2, MAX_EPOCH_JUMP + 100, (1, 1), ErrorCode.INVALID_REQUEST),
        (77, 5, (1, 1), ErrorCode.INCONSISTENT_VOTER_SET),
    ],
)
def test_forged_votes_change_nothing(candidate: int, epoch: int, last: tuple[int, int], error: ErrorCode) -> None:
    replica = voter(leader_epoch=LeaderEpoch(3))
    before = replica.state
    assert ask(replica, candidate, epoch=epoch, last=last) == (False, error)
    assert replica.state == before
    assert replica.raft.epoch == 3


def test_a_vote_of_another_cluster_or_partition_is_refused() -> None:
    replica = voter()
    assert replica.raft.vote_asked(VoteRequest(cluster_id="other", topics=[]), 0) == VoteResponse(
        error_code=ErrorCode.INCONSISTENT_CLUSTER_ID
    )
    assert replica.raft.vote_asked(VoteRequest(cluster_id=CLUSTER, topics=[]), 0) == VoteResponse(
        error_code=ErrorCode.INVALID_REQUEST
    )


def test_a_vote_for_the_directory_this_voter_once_had() -> None:
    replica = Cluster(3, dynamic=True)[1]
    replica.raft.begin(0)
    meant = dataclasses.replace(replica.me, directory_id=uuid(99))
    assert ask(replica, 2, epoch=1, to=meant) == (False, ErrorCode.INVALID_VOTER_KEY)


# --- the log ----------------------------------------------------------------------------------------------------------


def test_what_an_older_epoch_left_counts_only_with_a_record_of_this_one() -> None:
    cluster = Cluster()
    leader = elected(cluster)
    progress = leader.raft.progress
    assert progress is not None
    assert leader.raft.high_watermark == 1
    cluster.down.append(leader.me.node_id)
    cluster.pass_time(500)
    second = cluster.leader
    assert second is not None
    (third,) = (each for each in cluster.replicas.values() if each not in (leader, second))
    assert second.raft.progress is not None
    assert second.raft.progress.committed_end_offset() > 1
    second.raft.progress.synced_end_offset = Offset(1)
    assert second.raft.progress.committed_end_offset() == -1
    assert third.raft.high_watermark == second.raft.high_watermark


def test_a_follower_cuts_what_the_leader_never_had() -> None:
    cluster = Cluster()
    leader = elected(cluster)
    cluster.drop = lambda source, target: leader.me.node_id in (source, target)
    for _ in range(3):
        leader.log.append(leader.raft.epoch)
    cluster.pass_time(400)
    second = cluster.leader
    assert second is not None
    cluster.drop = lambda source, target: False
    cluster.pass_time(5000)
    assert leader.log.epochs == second.log.epochs
    assert leader.raft.high_watermark == second.raft.high_watermark


def test_a_fetch_that_only_the_leader_may_serve() -> None:
    cluster = Cluster()
    leader = elected(cluster)
    (follower, *_) = (each for each in cluster.replicas.values() if each is not leader)
    epoch = leader.raft.epoch

    def verdict(replica: Replica, epoch: int, node_id: int = 2) -> ErrorCode:
        key = ReplicaKey(NodeId(node_id), ZERO_UUID)
        return replica.raft.fetched(key, epoch=epoch, fetch_offset=0, last_fetched_epoch=0, now_ms=0).error

    assert verdict(leader, epoch - 1) is ErrorCode.FENCED_LEADER_EPOCH
    assert verdict(leader, epoch + 1) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert verdict(follower, epoch) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert verdict(leader, epoch, leader.me.node_id) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert verdict(leader, epoch, 99) is ErrorCode.NONE


def test_a_replica_that_is_behind_the_snapshot_is_sent_there() -> None:
    replica = lone()
    for epoch in (1, 1, 2, 2):
        replica.log.append(epoch)
    replica.log.oldest_snapshot = replica.log.newest_snapshot = SnapshotId(Offset(3), LeaderEpoch(2))
    replica.log.log_start_offset = Offset(3)
    replica.begin().begin(0)
    replica.settle()

    def fetch(offset: int, epoch: int) -> tuple[SnapshotId | None, object]:
        verdict = replica.raft.fetched(
            ReplicaKey(NodeId(5)),
            epoch=replica.raft.epoch,
            fetch_offset=offset,
            last_fetched_epoch=epoch,
            now_ms=0,
        )
        return verdict.snapshot, verdict.diverging

    newest = replica.log.newest_snapshot
    assert fetch(0, 0) == (newest, None)
    assert fetch(2, 1) == (newest, None)
    assert fetch(3, 1) == (newest, None)
    assert fetch(3, 2) == (None, None)
    assert fetch(4, 2) == (None, None)
    snapshot, diverging = fetch(9, 2)
    assert snapshot is None
    assert diverging is not None


def test_every_role_can_be_left_and_reached() -> None:
    assert set(TRANSITIONS) == set(Role)
    for role in Role:
        assert any(role in reached for reached in TRANSITIONS.values())
