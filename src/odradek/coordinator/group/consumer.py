"""A KIP-848 group: its members, the assignment they shall reach, and who owns each partition meanwhile.

Three numbers tell how far it is: the group epoch rises with every reason to assign anew, the assignment epoch is the
group epoch that the target was made for, and a member's epoch is the target that the member has reached.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Any

from odradek.coordinator.group import consumer_records as records
from odradek.coordinator.group.assignors.spec import NOTHING, Assignment
from odradek.coordinator.group.consumer_member import NOT_HELD, ConsumerMember
from odradek.coordinator.group.consumer_protocol import PROTOCOL_TYPE
from odradek.coordinator.group.group import Group
from odradek.coordinator.group.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from odradek.coordinator.shard import CoordinatorRecord
from odradek.ids import Uuid
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError

FIRST_EPOCH = 1
"""Of a group that nobody has joined yet; its first member makes it two."""

_NO_GENERATION = -1
_MEMBER_EPOCHS_SINCE = 9
"""From this version on OffsetCommit carries member epochs."""


class ConsumerState(enum.Enum):
    """Under the names that clients are told."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup(Group):
    """Changed by replay alone, except for `refresh` and `touched_topics`, which no record tells."""

    type_name = "consumer"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms: int | None = None
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        """Member id by instance id."""
        self.targets: dict[str, Assignment] = {}
        self.regexes: dict[str, frozenset[str]] = {}
        """Topics by the expression that describes them."""
        self.name_counts: dict[str, int] = {}
        self.regex_counts: dict[str, int] = {}
        """How many members are subscribed to each name, and by each expression."""
        self.has_partition_metadata = False
        """Whether the log holds a record of Kafka before 4.1, which the next write takes away."""
        self.refresh = True
        """Whether topics may have changed since the group last looked."""
        self.touched_topics: dict[str, None] | None = None
        """Topics that came or went since then; None if all have to be looked at."""
        self._owners: dict[Uuid, dict[int, str]] = {}

    # What every group answers.

    @property
    def state(self) -> ConsumerState:
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerState.STABLE
        return ConsumerState.RECONCILING

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type_name(self) -> str:
        return PROTOCOL_TYPE

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def awaits_members(self) -> bool:
        return False

    def check_offset_commit(
        self, *, member_id: str, instance_id: str | None, generation_id: int, api_version: int, transactional: bool
    ) -> None:
        """A member may be behind; `check_committed` says what that means for a partition."""
        if generation_id < 0 and not self.members:
            return  # An admin client, or a consumer that assigns partitions itself.
        if transactional and generation_id == _NO_GENERATION and not member_id and instance_id is None:
            return
        member = self.member(member_id)
        if member.classic is None and not transactional and api_version < _MEMBER_EPOCHS_SINCE:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the modern group protocol",
            )
        if member.classic is not None or generation_id > member.member_epoch:
            _check_epoch(member, generation_id)

    def check_committed(self, member_id: str, member_epoch: int, partitions: Iterable[tuple[Uuid, int]]) -> None:
        """KIP-1251: the epoch may be an older one if the member has had every partition since then."""
        member = self.members.get(member_id)
        if member is None or member_epoch == member.member_epoch:
            return
        for topic, index in partitions:
            got_at = member.assigned.get(topic, NOT_HELD).get(index)
            if got_at is None or got_at > member_epoch:
                _check_epoch(member, member_epoch)

    def check_offset_fetch(self, *, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        _check_epoch(self.member(member_id or ""), member_epoch)

    def check_offset_delete(self) -> None:
        """Always, where nobody is subscribed to the topic."""

    def check_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.name_counts or any(topic in topics for topics in self.regexes.values())

    def offsets_unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def tombstones(self) -> list[CoordinatorRecord]:
        out: list[CoordinatorRecord] = []
        for member_id in self.members:
            out += records.member_tombstones(self.group_id, member_id)
        out.append(records.target_epoch_tombstone(self.group_id))
        out += [records.regex_tombstone(self.group_id, expression) for expression in self.regexes]
        if self.has_partition_metadata:
            out.append(records.partition_metadata_tombstone(self.group_id))
        out.append(records.group_tombstone(self.group_id))
        return out

    # Members.

    def member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = self.static_members.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.members[member_id]

    def target_of(self, member: ConsumerMember) -> Assignment:
        """Of a static member that comes back under another id: what it had under the old one."""
        held = self.targets.get(member.member_id)
        if held is None and member.instance_id is not None:
            held = self.targets.get(self.static_members.get(member.instance_id, ""))
        return NOTHING if held is None else held

    def is_free(self, topic: Uuid, partition: int) -> bool:
        """Whether nobody owns the partition, not even somebody who is asked to give it up."""
        return partition not in self._owners.get(topic, {})

    # The log.

    def replay(self, key: Message, content: Any) -> None:
        """Take over a record of this group. Keys of a compacted log come in the order of their last values."""
        match key:
            case ConsumerGroupMetadataKey():
                self.epoch = content.epoch
                self.metadata_hash = content.metadata_hash
            case ConsumerGroupPartitionMetadataKey():
                self.has_partition_metadata = content is not None
            case ConsumerGroupTargetAssignmentMetadataKey():
                self.assignment_epoch = FIRST_EPOCH if content is None else content.assignment_epoch
                self.assignment_timestamp_ms = None if content is None else content.assignment_timestamp
            case ConsumerGroupRegularExpressionKey(regular_expression=expression):
                self.regexes.pop(expression, None)
                if content is not None:
                    self.regexes[expression] = frozenset(content.topics)
            case ConsumerGroupTargetAssignmentMemberKey(member_id=member_id):
                self.targets.pop(member_id, None)
                if content is not None:
                    self.targets[member_id] = records.target_of(content)
            case ConsumerGroupMemberMetadataKey(member_id=member_id):
                if content is None:
                    self._remove(member_id)
                else:
                    self._put(records.with_metadata(self._member_or_new(member_id), content))
            case ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id):
                if content is not None:
                    self._put(records.with_current(self._member_or_new(member_id), content))
                elif member_id in self.members:
                    self._put(records.with_nothing(self.members[member_id]))
            case _:
                raise AssertionError(f"{type(key).__name__} is not about a consumer group")

    def _member_or_new(self, member_id: str) -> ConsumerMember:
        return self.members.get(member_id) or ConsumerMember(member_id)

    def _put(self, member: ConsumerMember) -> None:
        """A member is new, or another one than before."""
        before = self.members.get(member.member_id)
        if before is not None:
            self._forget(before)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        count(self.name_counts, member.topic_names, 1)
        if member.topic_regex:
            count(self.regex_counts, (member.topic_regex,), 1)
        for held in (member.assigned, member.pending_revocation):
            for topic, partitions in held.items():
                self._owners.setdefault(topic, {}).update(dict.fromkeys(partitions, member.member_id))

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._forget(member)

    def _forget(self, member: ConsumerMember) -> None:
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]
        count(self.name_counts, member.topic_names, -1)
        if member.topic_regex:
            count(self.regex_counts, (member.topic_regex,), -1)
        for held in (member.assigned, member.pending_revocation):
            for topic, partitions in held.items():
                owners = self._owners.get(topic, {})
                for index in partitions:
                    if owners.get(index) == member.member_id:
                        del owners[index]
                if not owners:
                    self._owners.pop(topic, None)


def count(counts: dict[str, int], names: Iterable[str], change: int) -> None:
    """Count names up or down; one that is at zero is not there."""
    for name in names:
        left = counts.get(name, 0) + change
        if left:
            counts[name] = left
        else:
            counts.pop(name, None)


def _check_epoch(member: ConsumerMember, member_epoch: int) -> None:
    if member_epoch == member.member_epoch:
        return
    if member.classic is not None:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    raise KafkaError(
        ErrorCode.STALE_MEMBER_EPOCH,
        f"The received member epoch {member_epoch} does not match the expected member epoch {member.member_epoch}.",
    )


def assignor_asked_for(members: Iterable[ConsumerMember], offered: Sequence[str]) -> str:
    """The one that most members name; the first of those that are offered if nobody names one."""
    counts: dict[str, int] = {}
    count(counts, (name for each in members if (name := each.server_assignor) is not None and name in offered), 1)
    return max(counts, key=counts.__getitem__, default=offered[0])
