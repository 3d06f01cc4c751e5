"""A static member that is replaced between giving partitions up and joining again (KIP-345 with KIP-429)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import pytest

from odradek.coordinator.group.joining import Joiner
from odradek.coordinator.group.settings import GroupSettings
from odradek.coordinator.group.shard import GroupShard
from odradek.coordinator.shard import CoordinatorDecision, Moment
from odradek.decisions import Ticket
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

    def __init__(self) -> None:
        self.shard = GroupShard(GroupSettings(initial_rebalance_delay_ms=0))
        self.asked = 0
        self.shard.loaded(self.now)

    @property
    def now(self) -> Moment:
        return Moment(1_000_000 + self.asked, self.asked)

    def take(self, decision: CoordinatorDecision) -> None:
        for record in decision.records:
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
