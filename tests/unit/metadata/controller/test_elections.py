"""Who leads, who is in sync, who may lead later: one change of a partition at a time, and many when a broker goes."""

from __future__ import annotations

import time

import pytest
from tests.unit.metadata.building import (
    TOPIC,
    broker,
    cluster,
    led_by,
    replayed,
    rules,
    the_partition,
    uuid,
    with_config,
    with_elr,
    with_topic,
)

from odradek.ids import NO_NODE, NodeId
from odradek.metadata.controller.brokers import fence, unfence
from odradek.metadata.controller.elections import Election, Electorate, PartitionChange
from odradek.metadata.controller.leadership import MAX_ELECTIONS_AT_ONCE, preferred_leaders, unclean_leaders
from odradek.metadata.image import Image
from odradek.metadata.image.topics import RECOVERED, RECOVERING, PartitionRegistration
from odradek.metadata.records import PartitionChangeRecord, PartitionRecord

THREE = cluster(broker(1), broker(2), broker(3))


def change(image: Image, *, min_isr: int = 1, leaving: int = -1, **wanted: object) -> PartitionChangeRecord | None:
    electorate = Electorate(image, leaving=NodeId(leaving))
    made = PartitionChange(electorate, TOPIC, 0, the_partition(image), min_isr=min_isr)
    for name, target in wanted.items():
        setattr(made, name, target)
    return made.record()


def changed(image: Image, **wanted: object) -> PartitionRegistration:
    record = change(image, **wanted)  # type: ignore[arg-type]
    return the_partition(image if record is None else replayed(image, [record]))


def test_nothing_to_change_is_no_record() -> None:
    assert change(with_topic(THREE, led_by(1, [1, 2, 3]))) is None


def test_the_next_in_sync_leads_in_the_order_of_replicas() -> None:
    image = with_topic(THREE, led_by(3, [3, 1, 2], [3, 2]))
    after = changed(image, isr=(2,), leaving=3)
    assert (after.leader, after.isr, after.leader_epoch, after.partition_epoch) == (2, (2,), 5, 7)


def test_the_leader_stays_although_another_is_preferred() -> None:
    image = with_topic(THREE, led_by(2, [1, 2, 3]))
    assert change(image) is None
    assert changed(image, election=Election.PREFERRED).leader == 1


def test_a_replica_in_a_lost_directory_does_not_lead() -> None:
    image = with_topic(THREE, led_by(3, [3, 1, 2], directories=[uuid(3001), uuid(1999), uuid(2001)]))
    assert changed(image, isr=(1, 2), leaving=3).leader == 2


def test_the_last_in_sync_replica_stays_in_sync_though_nobody_leads() -> None:
    image = with_topic(THREE, led_by(1, [1]))
    after = changed(image, isr=(), leaving=1)
    assert (after.leader, after.isr, after.leader_epoch) == (NO_NODE, (1,), 5)
    assert (after.elr, after.last_known_elr) == ((), ())


def test_an_isr_that_shrinks_keeps_the_leader_epoch_except_in_old_clusters() -> None:
    image = with_topic(THREE, led_by(1, [1, 2, 3]))
    assert changed(image, isr=(1, 2)).leader_epoch == 4
    old = with_topic(cluster(broker(1), broker(2), broker(3), metadata_version=11), led_by(1, [1, 2, 3]))
    assert changed(old, isr=(1, 2)).leader_epoch == 5
    assert changed(old, isr=(1, 2, 3)).leader_epoch == 4


def test_an_unclean_election_takes_whoever_is_there_and_says_so() -> None:
    image = with_topic(cluster(broker(1, fenced=True), broker(2)), led_by(-1, [1, 2], [1]))
    assert change(image) is None
    after = changed(image, election=Election.UNCLEAN)
    assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), RECOVERING)


class TestEligibleLeaders:
    """KIP-966."""

    image = with_elr(with_topic(THREE, led_by(1, [1, 2, 3])))

    def test_who_leaves_below_the_minimum_is_eligible(self) -> None:
        assert changed(self.image, min_isr=2, isr=(1, 2)).elr == ()
        image = replayed(self.image, [change(self.image, min_isr=2, isr=(1, 2))])  # type: ignore[list-item]
        after = changed(image, min_isr=2, isr=(1,))
        assert (after.leader, after.isr, after.elr) == (1, (1,), (2,))

    def test_the_isr_may_be_empty_and_the_last_leader_is_remembered(self) -> None:
        image = with_elr(with_topic(THREE, led_by(1, [1, 2, 3], [1], eligible_leader_replicas=[2])))
        image = replayed(image, fence(image, NodeId(2), rules(image)))
        record = change(image, min_isr=2, isr=(), leaving=1)
        assert record is not None
        after = the_partition(replayed(image, [record]))
        assert (after.leader, after.isr, after.elr, after.last_known_elr) == (NO_NODE, (), (1, 2), (1,))

    def test_an_eligible_one_is_elected_cleanly(self) -> None:
        partition = led_by(-1, [1, 2, 3], [], eligible_leader_replicas=[2, 3], last_known_elr=[1])
        image = with_elr(with_topic(cluster(broker(1), broker(2), broker(3, fenced=True)), partition))
        after = changed(image, min_isr=2)
        assert (after.leader, after.isr, after.elr, after.last_known_elr) == (2, (2,), (3,), ())
        assert after.leader_recovery_state == RECOVERED

    def test_a_full_isr_forgets_them(self) -> None:
        image = with_elr(with_topic(THREE, led_by(1, [1, 2, 3], [1], eligible_leader_replicas=[2, 3])))
        assert changed(image, min_isr=2, isr=(1, 3)).elr == ()

    def test_whoever_lost_its_tail_is_not_eligible(self) -> None:
        image = with_elr(with_topic(THREE, led_by(1, [1, 2, 3], [1], eligible_leader_replicas=[2, 3])))
        after = changed(image, min_isr=2, isr=(), leaving=1, unclean_replica=1)
        assert (after.leader, after.elr) == (2, (3,))

    def test_the_last_one_in_sync_is_remembered_where_the_feature_came_while_nobody_led(self) -> None:
        """Without the feature the last one stays in the ISR; then it is turned on, and that one has lost its tail."""
        fenced = cluster(broker(1), broker(2, fenced=True), broker(3))
        image = with_elr(with_topic(fenced, led_by(-1, [1, 2, 3], [2])))
        after = changed(image, min_isr=2, isr=(), leaving=2, unclean_replica=2)
        assert (after.leader, after.isr, after.elr, after.last_known_elr) == (NO_NODE, (), (), (2,))
        back = with_elr(with_topic(THREE, led_by(-1, [1, 2, 3], [], last_known_elr=[2])))
        assert changed(back, min_isr=2).leader == 2

    def test_the_last_leader_leads_again_when_all_others_are_gone(self) -> None:
        image = with_elr(with_topic(THREE, led_by(-1, [1, 2], [], last_known_elr=[2])))
        after = changed(image, min_isr=2)
        assert (after.leader, after.isr, after.last_known_elr) == (2, (2,), ())
        assert after.leader_recovery_state == RECOVERING
        fenced = with_elr(
            with_topic(cluster(broker(1), broker(2, fenced=True)), led_by(-1, [1, 2], [], last_known_elr=[2]))
        )
        assert change(fenced, min_isr=2) is None
        moved_away = with_elr(with_topic(THREE, led_by(-1, [1, 2], [], last_known_elr=[3])))
        assert change(moved_away, min_isr=2) is None

    def test_without_the_feature_they_are_forgotten(self) -> None:
        image = with_topic(THREE, led_by(1, [1, 2, 3], [1], eligible_leader_replicas=[2, 3]))
        assert changed(image, min_isr=2).elr == ()


class TestReassignment:
    def test_it_is_done_once_all_new_ones_are_in_sync(self) -> None:
        image = with_topic(THREE, led_by(1, [3, 2, 1], [1, 2], removing_replicas=[1], adding_replicas=[3]))
        after = changed(image, isr=(1, 2, 3))
        assert (after.replicas, after.isr, after.leader) == ((3, 2), (2, 3), 3)
        assert (after.removing_replicas, after.adding_replicas) == ((), ())
        assert after.directories == (uuid(3001), uuid(2001))
        assert after.leader_epoch == 5

    def test_fewer_replicas_must_all_be_in_sync(self) -> None:
        image = with_topic(THREE, led_by(1, [2, 3, 1], [1, 2], removing_replicas=[1]))
        assert change(image) is None
        assert changed(image, isr=(1, 2, 3)).replicas == (2, 3)

    def test_a_leader_that_stays_gets_a_new_epoch_when_replicas_go(self) -> None:
        image = with_topic(THREE, led_by(2, [2, 3], removing_replicas=[3]))
        after = changed(image)
        assert (after.replicas, after.leader, after.leader_epoch) == ((2,), 2, 5)


def test_new_replicas_get_a_directory() -> None:
    image = with_topic(cluster(broker(1), broker(2), broker(3, log_dirs=2)), led_by(1, [1, 2]))
    after = changed(image, replicas=(1, 2, 3), adding_replicas=(3,))
    assert after.directories == (uuid(1001), uuid(2001), uuid(1))


# Brokers come and go.


def test_fencing_moves_leaders_and_shrinks_isrs() -> None:
    image = with_topic(THREE, led_by(1, [1, 2, 3]), led_by(2, [2, 3, 1]), led_by(1, [1]), led_by(3, [3]))
    records = fence(image, NodeId(1), rules(image))
    after = replayed(image, records)
    states = [(each.leader, each.isr) for each in after.topics.by_name["t"].partitions]
    assert states == [(2, (2, 3)), (2, (2, 3)), (NO_NODE, (1,)), (3, (3,))]
    assert after.cluster.brokers[NodeId(1)].fenced
    assert len(records) == 4
    assert fence(after, NodeId(1), rules(after)) == []


def test_unfencing_brings_leaders_to_what_has_none() -> None:
    image = with_topic(THREE, led_by(1, [1]), led_by(1, [1, 2]))
    image = replayed(image, fence(image, NodeId(1), rules(image)))
    after = replayed(image, unfence(image, NodeId(1), rules(image)))
    states = [(each.leader, each.isr, each.leader_epoch) for each in after.topics.by_name["t"].partitions]
    assert states == [(1, (1,), 6), (2, (2,), 5)]


def test_where_a_topic_allows_it_fencing_elects_anybody() -> None:
    image = with_config(with_topic(THREE, led_by(1, [1, 2], [1])), unclean_leader_election_enable="true")
    after = the_partition(replayed(image, fence(image, NodeId(1), rules(image))))
    assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), RECOVERING)


def test_leaders_go_back_to_the_preferred_replicas() -> None:
    image = with_topic(THREE, led_by(2, [1, 2]), led_by(2, [1, 2], [2]), led_by(2, [2, 1]))
    (record,) = preferred_leaders(image, rules(image))
    assert isinstance(record, PartitionChangeRecord)
    assert (record.partition_id, record.leader) == (0, 1)


def test_only_so_many_elections_are_made_at_once() -> None:
    image = with_topic(THREE, *(led_by(2, [1, 2]) for _ in range(MAX_ELECTIONS_AT_ONCE + 5)))
    records = preferred_leaders(image, rules(image))
    assert len(records) == MAX_ELECTIONS_AT_ONCE
    assert len(preferred_leaders(replayed(image, records), rules(image))) == 5


def test_unclean_elections_are_for_topics_that_allow_them() -> None:
    image = with_topic(cluster(broker(1, fenced=True), broker(2)), led_by(-1, [1, 2], [1]))
    assert unclean_leaders(image, rules(image)) == []
    image = with_config(image, unclean_leader_election_enable="true")
    (record,) = unclean_leaders(image, rules(image))
    assert isinstance(record, PartitionChangeRecord)
    assert record.leader == 2


@pytest.mark.parametrize("elr", [False, True])
def test_fencing_a_broker_with_ten_thousand_partitions_is_quick(elr: bool) -> None:
    def spread(index: int) -> PartitionRecord:
        first = index % 3
        return led_by(1 + first, [1 + first, 1 + (first + 1) % 3, 1 + (first + 2) % 3])

    image = with_topic(THREE, *(spread(index) for index in range(10_000)))
    image = with_elr(image) if elr else image
    best = 10.0
    for _ in range(3):
        began = time.perf_counter()
        records = fence(image, NodeId(1), rules(image))
        best = min(best, time.perf_counter() - began)
    assert len(records) == 10_001
    assert best < 0.5
    after = replayed(image, records)
    assert all(partition.leader in (2, 3) for partition in after.topics.by_name["t"].partitions)
