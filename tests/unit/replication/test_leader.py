"""Leaders: what counts for the watermark, and who is proposed for the ISR."""

from __future__ import annotations

from itertools import product

from tests.unit.metadata.building import broker, uuid
from tests.unit.replication.test_partition import ME, NOW_MS, append, open_log

from odradek.ids import ZERO_UUID, LeaderEpoch, NodeId, Offset
from odradek.protocol.errors import ErrorCode
from odradek.replication.broker_liveness import BrokerLiveness
from odradek.replication.isr import IsrProposal
from odradek.replication.leader import Leadership
from odradek.replication.partition import FetchStateUpdate, Partition, PartitionState
from odradek.storage.config import LogConfig

TWO, THREE = NodeId(2), NodeId(3)
ALL = (ME, TWO, THREE)


def led(
    *, isr: tuple[NodeId, ...] = ALL, config: LogConfig | None = None, around: BrokerLiveness | None = None
) -> Partition:
    around = around or BrokerLiveness(max_lag_ms=1_000)
    around.registered = {node: 10 + node for node in ALL}
    around.active = dict.fromkeys(ALL)
    around.broker_epoch = 11
    replica = Partition(ME, open_log(config or LogConfig()), around)
    replica.apply(PartitionState(ME, LeaderEpoch(0), 0, ALL, isr), now_ms=0)
    return replica


def write(replica: Partition, now_ms: int = 0) -> None:
    end = replica.log.log_end_offset
    append(replica)
    replica.note_append(end, now_ms=now_ms, wall_ms=NOW_MS)


def fetch(replica: Partition, follower: NodeId, offset: int, now_ms: int = 0) -> FetchStateUpdate:
    return replica.update_follower_fetch_state(
        follower, fetch_offset=Offset(offset), log_start_offset=Offset(0), broker_epoch=10 + follower, now_ms=now_ms
    )


def test_the_watermark_is_the_least_end_of_all_who_count_and_never_goes_back() -> None:
    """All ways for two followers to stand, each in sync, just let in, about to come in, fenced or silent for long."""
    moves = stays = 0
    for isr, let_in, active in product(
        [ALL, (ME, TWO), (ME,)], [(), (THREE,)], [dict.fromkeys(ALL), dict.fromkeys((ME, TWO))]
    ):
        leadership = leading(isr, let_in)
        around = BrokerLiveness(max_lag_ms=1_000)
        around.registered, around.active = {node: 10 + node for node in ALL}, active
        for two, three, current, own, min_insync, now_ms in product(
            [-1, 3, 5, 9], [-1, 3, 5, 9], [3, 5, 9], [5, 9], [1, 2, 9], [500, 5_000]
        ):
            leadership.followers[TWO].log_end_offset = Offset(two)
            leadership.followers[THREE].log_end_offset = Offset(three)
            expected = Offset(current)
            if len(isr) >= min(min_insync, len(ALL)):
                counted = [
                    progress.log_end_offset
                    for node, progress in leadership.followers.items()
                    if node in isr
                    or node in let_in
                    or (
                        node in active
                        and progress.is_caught_up(leader_end=Offset(own), now_ms=now_ms, max_lag_ms=1_000)
                    )
                ]
                expected = max(expected, min([Offset(own), *counted]))
            assert leadership.high_watermark(Offset(current), Offset(own), min_insync, around, now_ms) == expected
            if expected > current:
                moves += 1
                assert leadership.note_append(Offset(9), Offset(current), now_ms=0)
            else:
                stays += not leadership.note_append(Offset(9), Offset(current), now_ms=0)
    assert moves > 100
    assert stays > 100


def leading(isr: tuple[NodeId, ...], let_in: tuple[NodeId, ...]) -> Leadership:
    leadership = Leadership(
        ME,
        leader_epoch=LeaderEpoch(0),
        partition_epoch=0,
        replicas=ALL,
        directories=(),
        isr=isr,
        epoch_start_offset=Offset(0),
        inherits=False,
        now_ms=0,
    )
    for node, progress in leadership.followers.items():
        progress.broker_epoch = 10 + node
        progress.last_caught_up_ms = 0
    if let_in and THREE not in isr:
        leadership.in_sync.propose(IsrProposal((*isr, *let_in), (), LeaderEpoch(0), 0))
    return leadership


def test_one_who_is_being_let_in_counts_whatever_image_comes_late() -> None:
    """The answer to the first proposal is here before the image that says the same; the second is on its way."""
    replica = led(isr=(ME,))
    write(replica)
    proposal = fetch(replica, TWO, 1).proposal
    assert proposal is not None
    assert replica.isr_agreed(proposal, leader_epoch=0, partition_epoch=1, isr=(ME, TWO), now_ms=0) is False
    second = fetch(replica, THREE, 1).proposal
    assert second is not None
    assert second.partition_epoch == 1
    replica.apply(PartitionState(ME, LeaderEpoch(0), 1, ALL, (ME, TWO)), now_ms=5_000)
    write(replica, now_ms=5_000)
    fetch(replica, TWO, 2, now_ms=5_000)
    fetch(replica, TWO, 2, now_ms=60_000)
    assert replica.log.high_watermark == 1
    assert replica.outcome(2) is None
    assert replica.isr_agreed(second, leader_epoch=0, partition_epoch=2, isr=ALL, now_ms=60_000) is False
    assert fetch(replica, THREE, 2, now_ms=60_000).high_watermark_moved


def test_who_leaves_counts_until_the_image_says_so() -> None:
    """The controller may have raised min.insync.replicas before it agreed, and made the one that leaves eligible: this
    leader, which has the answer but not yet the setting, must not acknowledge alone."""
    replica = led(isr=(ME, TWO))
    fetch(replica, TWO, 0)
    write(replica)
    proposal = replica.lagging(5_000)
    assert proposal is not None
    assert proposal.isr == (ME,)
    assert replica.isr_agreed(proposal, leader_epoch=0, partition_epoch=1, isr=(ME,), now_ms=5_000) is False
    assert (replica.state.isr, replica.outcome(1)) == ((ME,), None)
    another = fetch(replica, THREE, 1, now_ms=5_000).proposal
    assert another is not None
    assert replica.isr_refused(another, now_ms=5_000) is False
    assert replica.outcome(1) is None
    replica.log.config = LogConfig(min_insync_replicas=2)
    replica.apply(PartitionState(ME, LeaderEpoch(0), 1, ALL, (ME,)), now_ms=5_000)
    assert replica.outcome(1) is None
    replica.log.config = LogConfig(min_insync_replicas=1)
    replica.apply(PartitionState(ME, LeaderEpoch(0), 1, ALL, (ME,)), now_ms=5_000)
    assert replica.outcome(1) is ErrorCode.NONE


def test_a_newer_word_of_the_cluster_ends_a_proposal() -> None:
    replica = led(isr=(ME, TWO))
    proposal = fetch(replica, THREE, 0).proposal
    assert proposal is not None
    replica.apply(PartitionState(ME, LeaderEpoch(0), 1, ALL, (ME,)), now_ms=0)
    assert replica.isr_agreed(proposal, leader_epoch=0, partition_epoch=1, isr=ALL, now_ms=0) is False
    assert replica.state.isr == (ME,)
    assert fetch(replica, THREE, 0).proposal is not None


def test_what_was_refused_is_proposed_again_by_the_next_fetch() -> None:
    replica = led(isr=(ME, TWO))
    first = fetch(replica, THREE, 0).proposal
    assert first is not None
    assert fetch(replica, THREE, 0).proposal is None
    replica.isr_refused(first, now_ms=0)
    again = fetch(replica, THREE, 0).proposal
    assert isinstance(again, IsrProposal)
    assert again is not first


def test_brokers_that_are_fenced_leaving_or_replaced_are_not_let_in() -> None:
    around = BrokerLiveness(max_lag_ms=1_000)
    replica = led(isr=(ME, TWO), around=around)
    around.active.pop(THREE)
    assert fetch(replica, THREE, 0).proposal is None
    around.active[THREE] = None
    around.registered[THREE] = 99
    assert fetch(replica, THREE, 0).proposal is None


def test_a_broker_that_has_lost_the_log_directory_of_the_partition_is_not_let_in() -> None:
    around = BrokerLiveness(max_lag_ms=1_000)
    replica = led(isr=(ME, TWO), around=around)
    around.brokers = {THREE: broker(THREE)}
    kept, lost = around.brokers[THREE].log_dirs[0], uuid(999)
    for partition_epoch, directory, lets_in in ((1, lost, False), (2, kept, True)):
        state = PartitionState(
            ME, LeaderEpoch(0), partition_epoch, ALL, (ME, TWO), directories=(ZERO_UUID, ZERO_UUID, directory)
        )
        replica.apply(state, now_ms=0)
        assert (fetch(replica, THREE, 0).proposal is not None) is lets_in


def test_a_steady_follower_does_not_lag_though_it_never_sees_the_end() -> None:
    replica = led(isr=(ME, TWO))
    for step in range(20):
        write(replica, now_ms=step * 600)
        fetch(replica, TWO, step, now_ms=step * 600 + 1)
    assert replica.lagging(11_500) is None
    write(replica, now_ms=12_000)
    assert replica.lagging(13_000) is not None


def test_an_append_that_lost_its_replicas_is_told_so() -> None:
    replica = led(config=LogConfig(min_insync_replicas=2))
    write(replica)
    fetch(replica, TWO, 1)
    fetch(replica, THREE, 1)
    assert replica.outcome(1) is ErrorCode.NONE
    replica.apply(PartitionState(ME, LeaderEpoch(0), 1, ALL, (ME,)), now_ms=0)
    assert replica.outcome(1) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert replica.outcome(2) is None
    replica.apply(PartitionState(TWO, LeaderEpoch(1), 2, ALL, (TWO,)), now_ms=0)
    assert replica.outcome(2) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_leader_counts_itself_only_as_far_as_it_has_synced() -> None:
    replica = led(isr=(ME, TWO), config=LogConfig(flush_messages=1))
    write(replica)
    fetch(replica, TWO, 1, now_ms=5_000)
    assert replica.log.high_watermark == 0
    assert replica.flushed(1, now_ms=5_000)
    assert replica.log.high_watermark == 1


def test_replicas_may_be_added_to_an_only_one_and_taken_away_again() -> None:
    replica = Partition(ME, open_log(LogConfig()), BrokerLiveness())
    replica.apply(PartitionState(ME, LeaderEpoch(0), 0, (ME,), (ME,)), now_ms=0)
    append(replica)
    assert replica.log.high_watermark == 1
    replica.apply(PartitionState(ME, LeaderEpoch(0), 1, (ME, TWO), (ME,)), now_ms=0)
    write(replica)
    assert replica.leadership is not None
    assert replica.log.high_watermark == 2
    replica.apply(PartitionState(ME, LeaderEpoch(0), 2, (ME, TWO), (ME, TWO)), now_ms=0)
    write(replica)
    assert replica.log.high_watermark == 2
    replica.apply(PartitionState(ME, LeaderEpoch(0), 3, (ME,), (ME,)), now_ms=0)
    assert replica.log.high_watermark == 3
    assert append(replica) == 3
    assert replica.log.high_watermark == 4
