"""Cooperative members (KIP-429) that are replaced, or upgraded, while partitions pass from one to another."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import pytest
from tests.unit.metadata.building import broker, cluster, led_by, with_topic

from odradek.coordinator.group.classic import ClassicGroup
from odradek.coordinator.group.consumer_migration import BIDIRECTIONAL, upgrade_records
from odradek.coordinator.group.consumer_records import ConsumerGroupCurrentMemberAssignmentValue
from odradek.coordinator.group.joining import Joiner
from odradek.coordinator.group.settings import GroupSettings
from odradek.coordinator.group.shard import GroupShard
from odradek.coordinator.shard import CoordinatorDecision, CoordinatorRecord, Moment
from odradek.decisions import Ticket
from odradek.metadata.image import Image
from odradek.protocol.codec import encode
from odradek.protocol.messages.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
)
from odradek.protocol.messages.describe_groups import DescribedGroup
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

VERSION = struct.pack(">h", 1)


class Group:
    """One group of static members that are all there when they join, and its shard."""

    def __init__(self, image: Image | None = None, log: Sequence[CoordinatorRecord] = ()) -> None:
        self.shard = GroupShard(GroupSettings(initial_rebalance_delay_ms=0))
        self.log = list(log)
        self.asked = 0
        if image is not None:
            self.shard.learn(image, None)
        for record in log:
            self.shard.replay(record)
        self.shard.loaded(self.now)

    @property
    def now(self) -> Moment:
        return Moment(1_000_000 + self.asked, self.asked)

    def take(self, decision: CoordinatorDecision) -> None:
        for record in decision.records:
            self.log.append(record)
            self.shard.replay(record)

    def join(self, member_id: str, instance_id: str, owned: Sequence[int]) -> None:
        self.asked += 1
        partitions = [SubscriptionTopicPartition(topic="t", partitions=list(owned))] if owned else []
        metadata = encode(ConsumerProtocolSubscription(topics=["t"], owned_partitions=partitions), 1)
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="cooperative-sticky", metadata=VERSION + metadata)],
        )
        joiner = Joiner(instance_id, "/host", 9, str(self.asked))
        self.take(self.shard.join(Ticket(self.asked), request, joiner, self.now))
        self.take(self.shard.expire(self.now))

    def assign(self, leader_id: str, generation_id: int, shares: Mapping[str, Sequence[int]]) -> None:
        self.asked += 1
        assignments = [
            SyncGroupRequestAssignment(member_id=member_id, assignment=VERSION + encode(assigned(share), 1))
            for member_id, share in shares.items()
        ]
        request = SyncGroupRequest(
            group_id="g", generation_id=generation_id, member_id=leader_id, assignments=assignments
        )
        self.take(self.shard.sync(Ticket(self.asked), request, self.now))

    def described(self) -> DescribedGroup:
        self.asked += 1
        ((_, answer),) = self.shard.describe(Ticket(self.asked), "g").answers
        assert isinstance(answer, DescribedGroup)
        return answer


def assigned(share: Sequence[int]) -> ConsumerProtocolAssignment:
    return ConsumerProtocolAssignment(
        assigned_partitions=[AssignmentTopicPartition(topic="t", partitions=list(share))] if share else []
    )


@pytest.mark.parametrize(("kept", "state"), [((0,), "PreparingRebalance"), ((0, 1), "Stable")])
def test_what_a_replaced_member_was_giving_up_finds_an_owner(kept: tuple[int, ...], state: str) -> None:
    """Taken over quietly, partition 1 was nobody's until something else made the group join (seed 820082)."""
    group = Group()
    group.join("", "one", ())
    one = group.described().members[0].member_id
    group.assign(one, 1, {one: (0, 1)})
    group.join("", "two", ())
    group.join(one, "one", (0, 1))
    two = next(each.member_id for each in group.described().members if each.member_id != one)
    group.assign(one, 2, {one: kept, two: ()})
    assert group.described().group_state == "Stable"
    group.join("", "one", ())
    assert group.described().group_state == state


def test_who_is_upgraded_amid_a_rebalance_keeps_what_it_says_it_owns() -> None:
    """It goes on with it; another member that was given the same set its offsets back (seed 901109 of groups)."""
    group = Group()
    group.join("", "one", ())
    one = group.described().members[0].member_id
    group.assign(one, 1, {one: (0, 1)})
    group.join("", "two", ())
    group.join(one, "one", (0, 1))
    group.join("", "three", ())
    classic = group.shard.groups["g"]
    assert isinstance(classic, ClassicGroup)
    assert not any(member.assignment for member in classic.members.values())
    image = with_topic(cluster(broker(1)), led_by(1, [1]), led_by(1, [1]))
    settings = GroupSettings(consumer_migration_policy=BIDIRECTIONAL)
    owned = [
        record.value.assigned_partitions[0].partitions
        for record in upgrade_records(classic, image.topics, settings)
        if isinstance(record.value, ConsumerGroupCurrentMemberAssignmentValue) and record.value.assigned_partitions
    ]
    assert owned == [[0, 1]]


@pytest.mark.parametrize(("partitions", "state"), [(2, "Stable"), (3, "PreparingRebalance")])
def test_a_group_whose_partitions_have_no_owner_joins_again_when_it_is_loaded(partitions: int, state: str) -> None:
    """It had just become a classic one, and was to join, when the node was killed (seed 900909 of groups)."""
    group = Group()
    group.join("", "one", ())
    one = group.described().members[0].member_id
    group.assign(one, 1, {one: (0, 1)})
    successor = Group(with_topic(cluster(broker(1)), *(led_by(1, [1]) for _ in range(partitions))), log=group.log)
    assert successor.described().group_state == state
