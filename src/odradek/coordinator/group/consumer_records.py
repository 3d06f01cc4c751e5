"""Records of KIP-848 groups in `__consumer_offsets`: how members and assignments are written and read again."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.coordinator.group.assignors.spec import Assignment
from odradek.coordinator.group.consumer_member import (
    HOLDS_NOTHING,
    LEAVE_EPOCH,
    ClassicMembership,
    ConsumerMember,
    Held,
    MemberState,
)
from odradek.coordinator.group.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)
from odradek.coordinator.shard import CoordinatorRecord
from odradek.values import replace


def group_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), None)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Kafka before 4.1 wrote down all partitions of a group's topics where now a hash stands."""
    return CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def regex_record(
    group_id: str, expression: str, topics: frozenset[str], *, version: int, now_ms: int
) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=expression),
        ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=now_ms),
    )


def regex_tombstone(group_id: str, expression: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=expression), None)


def target_epoch_record(group_id: str, epoch: int, *, now_ms: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms),
    )


def target_epoch_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TopicPartition(topic_id=topic, partitions=list(partitions)) for topic, partitions in target.items()
            ]
        ),
    )


def target_of(content: ConsumerGroupTargetAssignmentMemberValue) -> Assignment:
    return {each.topic_id: tuple(sorted(each.partitions)) for each in content.topic_partitions}


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """What the member asked for."""
    classic = None
    if member.classic is not None:
        classic = ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.classic.protocols
            ],
        )
    return CoordinatorRecord(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topic_names),
            subscribed_topic_regex=member.topic_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=classic,
        ),
    )


def with_metadata(member: ConsumerMember, content: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    """The member as its newest metadata record says."""
    classic = None
    if content.classic_member_metadata is not None:
        held = content.classic_member_metadata
        classic = ClassicMembership(
            held.session_timeout_ms, tuple((each.name, each.metadata) for each in held.supported_protocols)
        )
    return replace(
        member,
        instance_id=content.instance_id,
        rack_id=content.rack_id,
        client_id=content.client_id,
        client_host=content.client_host,
        topic_names=frozenset(content.subscribed_topic_names),
        topic_regex=content.subscribed_topic_regex or "",
        rebalance_timeout_ms=content.rebalance_timeout_ms,
        server_assignor=content.server_assignor,
        classic=classic,
    )


def current_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """What the member holds."""
    return CoordinatorRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=member.state,
            assigned_partitions=_written(member.assigned),
            partitions_pending_revocation=_written(member.pending_revocation),
        ),
    )


def with_current(member: ConsumerMember, content: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
    known = content.state in MemberState.__members__.values()
    return replace(
        member,
        member_epoch=content.member_epoch,
        previous_member_epoch=content.previous_member_epoch,
        state=MemberState(content.state) if known else MemberState.UNKNOWN,
        assigned=_read(content.assigned_partitions, content.member_epoch),
        pending_revocation=_read(content.partitions_pending_revocation, content.member_epoch),
    )


def with_nothing(member: ConsumerMember) -> ConsumerMember:
    """The member after a tombstone of what it held."""
    return replace(
        member,
        member_epoch=LEAVE_EPOCH,
        previous_member_epoch=LEAVE_EPOCH,
        state=MemberState.STABLE,
        assigned=HOLDS_NOTHING,
        pending_revocation=HOLDS_NOTHING,
    )


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """All that is known of a member, what it holds first: nobody may find a member without its metadata."""
    return [
        CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def _written(held: Held) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic, partitions=list(epochs), assignment_epochs=list(epochs.values()))
        for topic, epochs in held.items()
    ]


def _read(written: Sequence[TopicPartitions], member_epoch: int) -> Held:
    """Coordinators before KIP-1251 did not write down when a member got a partition; at the latest now."""
    return {
        each.topic_id: dict(
            zip(each.partitions, each.assignment_epochs or [member_epoch] * len(each.partitions), strict=True)
        )
        for each in written
    }
