"""A group with members passes from the classic protocol to KIP-848 and back: what that writes, and when it may be.

Upwards it goes when a member of the new protocol joins: the others stay, as classic members of a consumer group.
Downwards it goes when the last member of the new protocol has gone and classic ones are left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from odradek.coordinator.group import consumer_records as records
from odradek.coordinator.group.assignors.spec import Assignment
from odradek.coordinator.group.classic import ClassicGroup, ClassicMember, State, select_protocol
from odradek.coordinator.group.consumer import FIRST_EPOCH, ConsumerGroup
from odradek.coordinator.group.consumer_member import ClassicMembership, ConsumerMember
from odradek.coordinator.group.consumer_protocol import (
    PROTOCOL_TYPE,
    VERSION,
    known_version,
    read_assignment,
    read_subscription,
)
from odradek.coordinator.group.settings import GroupSettings
from odradek.coordinator.shard import CoordinatorRecord
from odradek.ids import Uuid
from odradek.metadata.image.topics import TopicsImage
from odradek.protocol.codec import encode
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedFrame
from odradek.protocol.messages.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
)

DISABLED, UPGRADE, DOWNGRADE, BIDIRECTIONAL = "disabled", "upgrade", "downgrade", "bidirectional"
"""Values of group.consumer.migration.policy."""

# What classic members say and are told.


def written_assignment(assignment: Assignment, topics: TopicsImage, like: bytes) -> bytes:
    """For a classic member, in the version of what it said; in the first where that cannot be read.

    Nobody reads what a member says for any but the protocol that is in use, so it may be anything, and a group must not
    fail for it when another protocol is chosen.
    """
    try:
        version = known_version(like)
    except MalformedFrame:
        version = 0
    content = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignmentTopicPartition(topic=topics.by_id[topic].name, partitions=list(partitions))
            for topic, partitions in assignment.items()
            if topic in topics.by_id
        ]
    )
    return VERSION.pack(version) + encode(content, version)


def identified(named: Iterable[tuple[str, Iterable[int]]], topics: TopicsImage) -> dict[Uuid, tuple[int, ...]]:
    """Partitions that exist, by the id of their topic instead of by its name.

    Members may name others: the topic that they know may have had more, before it was deleted and created again.
    """
    found: dict[Uuid, set[int]] = {}
    for name, partitions in named:
        topic = topics.by_name.get(name)
        if topic is not None:
            count = len(topic.partitions)
            found.setdefault(topic.topic_id, set()).update(index for index in partitions if 0 <= index < count)
    return {topic: tuple(sorted(partitions)) for topic, partitions in found.items()}


# Upwards.


def upgrade_records(group: ClassicGroup, topics: TopicsImage, settings: GroupSettings) -> Iterator[CoordinatorRecord]:
    """The classic group goes and a consumer group with the same members and assignment comes; KafkaError if not."""
    group_id = group.group_id
    why_not = None
    if settings.consumer_migration_policy not in (UPGRADE, BIDIRECTIONAL):
        why_not = "online upgrade is disabled"
    elif group.protocol_type != PROTOCOL_TYPE:
        why_not = "the group does not use the consumer embedded protocol"
    elif len(group.members) > settings.consumer_max_size:
        why_not = "the group size exceeds the consumer group maximum size"
    if why_not is not None:
        raise _not_upgraded(group_id, why_not)
    epoch = max(group.generation_id, FIRST_EPOCH)
    try:
        members = [_upgraded(group, member, topics, epoch) for member in group.members.values()]
    except MalformedFrame:
        raise _not_upgraded(group_id, "the embedded consumer protocol is malformed") from None
    _check_owned_once(group_id, members)
    yield from group.tombstones()
    for member in members:
        yield records.member_record(group_id, member)
    yield records.group_record(group_id, epoch, 0)
    for member in members:
        target = {topic: tuple(partitions) for topic, partitions in member.assigned.items()}
        yield records.target_record(group_id, member.member_id, target)
    yield records.target_epoch_record(group_id, epoch, now_ms=0)
    for member in members:
        yield records.current_record(group_id, member)


def _not_upgraded(group_id: str, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group_id} to consumer group because {why}."
    )


def _check_owned_once(group_id: str, members: Iterable[ConsumerMember]) -> None:
    """Classic members assign what they like; here a partition has one owner, and Kafka too refuses the member."""
    owners: dict[tuple[Uuid, int], str] = {}
    for member in members:
        for topic, partitions in member.assigned.items():
            for index in partitions:
                if owners.setdefault((topic, index), member.member_id) != member.member_id:
                    raise KafkaError(
                        ErrorCode.UNKNOWN_SERVER_ERROR,
                        f"Cannot upgrade classic group {group_id} to consumer group because two of its members own "
                        "the same partition.",
                    )


def _upgraded(group: ClassicGroup, member: ClassicMember, topics: TopicsImage, epoch: int) -> ConsumerMember:
    """Stable, with what it has; if it was about to get something else, it will be told to join again."""
    protocol = group.protocol_name or select_protocol(group.members.values())
    subscription = read_subscription(member.metadata(protocol))
    assigned: Mapping[Uuid, tuple[int, ...]] = {}
    if member.assignment:
        assignment = read_assignment(member.assignment)
        if assignment.user_data:
            raise _not_upgraded(
                group.group_id,
                "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
                "assignor before re-attempting the upgrade",
            )
        assigned = identified(((each.topic, each.partitions) for each in assignment.assigned_partitions), topics)
    elif group.state is not State.STABLE:
        # Amid a rebalance nobody is assigned anything, but cooperative members go on with what they say they own.
        assigned = identified(((each.topic, each.partitions) for each in subscription.owned_partitions), topics)
    return ConsumerMember(
        member.member_id,
        member_epoch=epoch,
        previous_member_epoch=epoch,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=frozenset(subscription.topics),
        classic=ClassicMembership(member.session_timeout_ms, member.protocols),
        assigned={topic: dict.fromkeys(partitions, epoch) for topic, partitions in assigned.items() if partitions},
    )


# Downwards.


def may_downgrade(group: ConsumerGroup, gone: Collection[str], left: int, settings: GroupSettings) -> bool:
    """Whether nobody but classic members is left, and some are."""
    if settings.consumer_migration_policy not in (DOWNGRADE, BIDIRECTIONAL):
        return False
    if not 0 < left <= settings.max_size:
        return False
    return all(member.classic is not None for member in group.members.values() if member.member_id not in gone)


def downgrade_records(
    group: ConsumerGroup, gone: Collection[str], joining: ConsumerMember | None, topics: TopicsImage, now_ms: int
) -> Iterator[CoordinatorRecord]:
    """The consumer group goes and a classic one comes, with the targets of its members as their assignments."""
    classic = ClassicGroup(group.group_id, now_ms=now_ms)
    classic.generation_id = group.epoch
    members = [member for member in group.members.values() if member.member_id not in gone]
    if joining is not None:
        members.append(joining)
        yield from records.member_tombstones(group.group_id, joining.member_id)
    yield from group.tombstones()
    for member in members:
        assert member.classic is not None
        made = ClassicMember(
            member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=member.classic.session_timeout_ms,
            protocols=member.classic.protocols,
        )
        classic.add(made, PROTOCOL_TYPE, None)
    classic.protocol_name = select_protocol(classic.members.values())
    assignments = {
        member.member_id: written_assignment(
            group.target_of(member), topics, classic.members[member.member_id].metadata(classic.protocol_name)
        )
        for member in members
    }
    yield classic.record(classic.members.values(), assignments, leader_id=classic.leader_id)
