"""All groups and offsets of one partition of `__consumer_offsets`.

`GroupShard` finds the group that a request means and lets the part that knows its kind decide. Requests that must wait
keep their ticket with the member; it is answered by a later decision.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from typing import Any, ClassVar

from odradek.coordinator.group.classic import ClassicGroup, State, empty_group_record
from odradek.coordinator.group.committing import MAX_RECORDS_PER_CLEANUP, OFFSETS, Commits
from odradek.coordinator.group.consumer import ConsumerGroup
from odradek.coordinator.group.consumer_classic_members import ClassicMembers
from odradek.coordinator.group.consumer_describing import described
from odradek.coordinator.group.consumer_groups import ConsumerGroups
from odradek.coordinator.group.group import Group
from odradek.coordinator.group.joining import Join, Joiner
from odradek.coordinator.group.kinds import GROUP_RECORDS
from odradek.coordinator.group.offsets import CommittedOffsets, offset_tombstone, read_plain
from odradek.coordinator.group.rebalance import (
    JOIN,
    SESSION,
    SYNC,
    UNKNOWN_MEMBER_ID,
    Rebalances,
    join_error,
    leaves_some_out,
)
from odradek.coordinator.group.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from odradek.coordinator.group.settings import GroupSettings
from odradek.coordinator.group.topic_commits import TopicCommit
from odradek.coordinator.shard import (
    CoordinatorDecision,
    CoordinatorRecord,
    Moment,
    Outcome,
    ProducerKey,
    RecordKinds,
    Timers,
)
from odradek.decisions import Ticket
from odradek.ids import ZERO_UUID, Uuid
from odradek.metadata.image import Changes, Image
from odradek.metadata.topic_names import MAX_NAME_LENGTH
from odradek.protocol.codec import Message, Struct
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.delete_groups import DeletableGroupResult
from odradek.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.join_group import JoinGroupRequest
from odradek.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from odradek.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from odradek.protocol.messages.offset_delete import OffsetDeleteRequest
from odradek.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from odradek.protocol.messages.sync_group import SyncGroupRequest
from odradek.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

FORGET = "forget"
"""The key of the timer that has offsets of deleted topics forgotten."""

RETRY_MS = 500
"""How long a timer waits whose work the log refused."""

MAX_CLEANUP_CHARACTERS = 500_000
"""Of names in the keys of one batch, which has to stay below `max.message.bytes`."""

BROKEN_RETRY_MS = 30_000
"""How long a timer waits whose work broke an invariant."""


class GroupShard:
    """The coordinator's state behind one partition."""

    kinds: ClassVar[RecordKinds] = GROUP_RECORDS

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.timers = Timers()
        self.groups: dict[str, Group] = {}
        self.offsets = CommittedOffsets()
        self.rebalances = Rebalances(settings, self.timers)
        self.consumers = ConsumerGroups(self.groups, settings, self.timers)
        self.classic_members = ClassicMembers(self.consumers, self.rebalances)
        self.commits = Commits(self.groups, self.offsets, self.rebalances)
        self._loading = True
        self._to_forget: dict[str, None] = {}
        """Topics that were deleted, under whose names there may be offsets."""
        self._expired: tuple[CoordinatorDecision, Hashable] | None = None
        """What the last timer led to, and which one it was."""
        self._replays: dict[type[Message], Callable[[Any, Any], None]] = {
            GroupMetadataKey: self._replay_group,
            OffsetCommitKey: self._replay_offset,
            **self.consumers.replays,
        }
        self._timeouts: dict[str, Callable[..., None]] = {
            SESSION: self._session_timeout,
            JOIN: self._join_timeout,
            SYNC: self._sync_timeout,
            OFFSETS: self.commits.expire,
            FORGET: self._forget_topics,
            **self.consumers.timeouts,
            **self.classic_members.timeouts,
        }

    # The log.

    def replay(self, record: CoordinatorRecord, producer: ProducerKey | None = None) -> None:
        if producer is None:
            self._replays[type(record.key)](record.key, record.value)
        elif isinstance(record.key, OffsetCommitKey):
            assert record.value is None or isinstance(record.value, OffsetCommitValue)
            self._replay_offset(record.key, record.value, producer)

    def replay_marker(self, producer: ProducerKey, committed: bool) -> None:
        self.offsets.replay_marker(producer, committed)

    def loaded(self, now: Moment) -> CoordinatorDecision:
        """Members are given their session timeout to be heard of again.

        What made a group join was in memory alone: one that had just become a classic one again, say, joins now.
        (In Kafka partitions of such a group are nobody's until something else makes it join.)
        """
        self._loading = False
        out = Outcome()
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    self.rebalances.extend_session(group, member, now)
                if len(group.members) > self.settings.max_size or leaves_some_out(group, self.consumers.image.topics):
                    self.rebalances.prepare(group, out, now)
        self.consumers.loaded(now)
        self.commits.expire_later(now)
        self._forget_soon()
        return self._decision(out)

    def learn(self, image: Image, changes: Changes | None) -> None:
        """Offsets of topics that were deleted go."""
        self.consumers.learn(image, None if changes is None else changes.topics)
        if changes is not None:
            self._to_forget |= dict.fromkeys(topic.name for topic in changes.topics.deleted)
            if not self._loading:
                self._forget_soon()

    def _forget_soon(self) -> None:
        if self._to_forget:
            self.timers.set((FORGET,), 0)

    def _forget_topics(self, out: Outcome, now: Moment) -> None:
        """As many offsets as one decision holds."""
        self.commits.forget_topics(self._to_forget, self.consumers.image.topics, out)
        if out.records:
            self.timers.set((FORGET,), now.monotonic_ms)
        else:
            self._to_forget = {}

    def _replay_group(self, key: GroupMetadataKey, content: GroupMetadataValue | None) -> None:
        group = self.groups.get(key.group)
        if content is None:
            self.groups.pop(key.group, None)
        elif self._loading or not isinstance(group, ClassicGroup):
            self.groups[key.group] = ClassicGroup.from_record(key.group, content)
        else:
            self.rebalances.adopt(group, content)

    def _replay_offset(
        self, key: OffsetCommitKey, content: OffsetCommitValue | None, producer: ProducerKey | None = None
    ) -> None:
        if content is not None:
            self._meet(key.group, key.topic, content.topic_id, content.commit_timestamp)
        self.offsets.replay(key, content, producer)

    def replay_encoded(self, key: bytes, content: bytes) -> bool:
        """Offsets without metadata: hundreds of thousands of them are nothing unusual."""
        found = read_plain(key, content)
        if found is None:
            return False
        group_id, topic, index, committed = found
        self._meet(group_id, topic, committed.topic_id, committed.commit_timestamp_ms)
        self.offsets.set(group_id, topic, index, committed)
        return True

    def _meet(self, group_id: str, topic: str, topic_id: Uuid, now_ms: int) -> None:
        """A group has committed an offset of that topic."""
        if group_id not in self.groups:
            # Somebody who commits without being a member: a group of offsets alone.
            self.groups[group_id] = ClassicGroup(group_id, now_ms=now_ms)
        if self._loading and not self._may_exist(topic_id):
            self._to_forget[topic] = None

    def _may_exist(self, topic_id: Uuid) -> bool:
        """Whoever leads this log knows of every topic in it, also of those deleted while nobody coordinated."""
        return topic_id == ZERO_UUID or topic_id in self.consumers.image.topics.by_id

    # Timers and failures.

    def expire(self, now: Moment) -> CoordinatorDecision:
        out = Outcome()
        for key in self.timers.due(now.monotonic_ms):
            assert isinstance(key, tuple)
            kind, *rest = key
            try:
                self._timeouts[kind](*rest, out, now)
            except Exception:
                # Not too soon, for it will most likely break again; and not never, for its group may change meanwhile.
                self.timers.set(key, now.monotonic_ms + BROKEN_RETRY_MS)
                raise
            if out.records:
                decision = self._decision(out)
                self._expired = decision, key
                return decision
        return self._decision(out)

    def refused(
        self, decision: CoordinatorDecision, code: ErrorCode, asker: Ticket | None, now: Moment
    ) -> CoordinatorDecision:
        out = Outcome()
        if self._expired is not None and self._expired[0] is decision:
            # What a timer brought about has not happened, and nobody but the timer asks for it again.
            self.timers.set(self._expired[1], now.monotonic_ms + RETRY_MS)
        self.consumers.refused(decision, now)
        for record in decision.records:
            if not isinstance(record.key, GroupMetadataKey):
                continue
            group = self.groups.get(record.key.group)
            if not isinstance(group, ClassicGroup):
                continue
            if group.generation_id == 0 and record.value is not None:
                # The group was to be created by this record; there is none then, unless it has offsets.
                self.rebalances.dismiss(group, code, out, now.wall_ms)
                del self.groups[group.group_id]
                if self.offsets.of(group.group_id):
                    self.groups[group.group_id] = ClassicGroup(group.group_id, now_ms=now.wall_ms)
            else:
                self.rebalances.refused(group, code, out, now)
        out.answers = [(ticket, answer) for ticket, answer in out.answers if ticket != asker]
        told = {asker, *(ticket for ticket, _ in out.answers)}
        # Members that the decision has already parted with are answered as it said.
        out.answers += [
            (ticket, answer) for ticket, answer in decision.answers if ticket not in told and not self.holds(ticket)
        ]
        return self._decision(out)

    def resign(self) -> CoordinatorDecision:
        out = Outcome()
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                self.rebalances.dismiss(group, ErrorCode.NOT_COORDINATOR, out, group.state_since_ms)
        return CoordinatorDecision((), tuple(out.answers))

    def holds(self, ticket: Ticket) -> bool:
        """Whether a member still waits with it; looked for only after a failure."""
        return any(
            ticket in (member.join_ticket, member.sync_ticket)
            for group in self.groups.values()
            if isinstance(group, ClassicGroup)
            for member in group.members.values()
        )

    def _session_timeout(self, group_id: str, member_id: str, out: Outcome, now: Moment) -> None:
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            self.rebalances.session_timeout(group, member_id, out, now)

    def _join_timeout(self, group_id: str, out: Outcome, now: Moment) -> None:
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            self.rebalances.join_timeout(group, out, now)

    def _sync_timeout(self, group_id: str, out: Outcome, now: Moment) -> None:
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            self.rebalances.sync_timeout(group, out, now)

    # Membership of classic groups.

    def join(self, ticket: Ticket, request: JoinGroupRequest, joiner: Joiner, now: Moment) -> CoordinatorDecision:
        settings = self.settings
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        out = Outcome()
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            Join(self.rebalances, group, ticket, request, joiner, out, now).decide()
        elif isinstance(group, ConsumerGroup) and not group.is_empty:
            out.answer(ticket, self.classic_members.join(group, request, joiner, out, now))
        elif group is not None and not isinstance(group, ConsumerGroup):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif group is None and request.member_id != UNKNOWN_MEMBER_ID:
            out.answer(ticket, join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        else:
            self._join_new_group(ticket, request, joiner, group, out, now)
        return self._decision(out)

    def _join_new_group(
        self,
        ticket: Ticket,
        request: JoinGroupRequest,
        joiner: Joiner,
        replaced: Group | None,
        out: Outcome,
        now: Moment,
    ) -> None:
        """The group is made also for somebody who cannot join it, as Kafka does."""
        group = ClassicGroup(request.group_id, now_ms=now.wall_ms)
        Join(self.rebalances, group, ticket, request, joiner, out, now).decide()
        self.groups[request.group_id] = group
        if not out.records:
            out.records.append(empty_group_record(group))
        if replaced is not None:
            out.records[:0] = replaced.tombstones()

    def knows(self, group_id: str, member_id: str) -> bool:
        """Whether somebody is a member of a classic group."""
        group = self.groups.get(group_id)
        return isinstance(group, ClassicGroup) and member_id in group.members

    def sync(self, ticket: Ticket, request: SyncGroupRequest, now: Moment) -> CoordinatorDecision:
        out = Outcome()
        group = self._group_of_member(request.group_id)
        if isinstance(group, ClassicGroup):
            self.rebalances.sync(group, ticket, request, out, now)
        else:
            out.answer(ticket, self.classic_members.sync(group, request, now))
        return self._decision(out)

    def heartbeat(self, ticket: Ticket, request: HeartbeatRequest, now: Moment) -> CoordinatorDecision:
        return self._answer(ticket, HeartbeatResponse(error_code=self.beat(request, now)))

    def beat(self, request: HeartbeatRequest, now: Moment) -> ErrorCode:
        """What a heartbeat is answered; it writes nothing."""
        group = self._group_of_member(request.group_id)
        if isinstance(group, ClassicGroup):
            return self.rebalances.heartbeat(group, request, now)
        return self.classic_members.heartbeat(group, request, now)

    def leave(self, ticket: Ticket, request: LeaveGroupRequest, now: Moment) -> CoordinatorDecision:
        out = Outcome()
        group = self._group_of_member(request.group_id)
        if isinstance(group, ConsumerGroup):
            members = self.classic_members.leave(group, request, out, now)
        else:
            members = self.rebalances.leave(group, request, out, now)
        out.answer(ticket, LeaveGroupResponse(members=members))
        return self._decision(out)

    def _group_of_member(self, group_id: str) -> ClassicGroup | ConsumerGroup:
        """The group of a request that only a member can send."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup) or isinstance(group, ConsumerGroup):  # noqa: SIM101 - most are classic
            return group
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    # Membership of KIP-848 groups.

    def consumer_heartbeat(
        self,
        ticket: Ticket,
        request: ConsumerGroupHeartbeatRequest,
        joiner: Joiner,
        now: Moment,
        *,
        may_see: Callable[[str], bool] | None = None,
    ) -> CoordinatorDecision:
        """`may_see` says which topics a subscription by expression may find; None if that is all of them."""
        out = Outcome()
        out.answer(ticket, self.consumers.heartbeat(request, joiner, may_see, out, now))
        return self._decision(out)

    def describe_consumer_group(self, ticket: Ticket, group_id: str) -> CoordinatorDecision:
        """As ConsumerGroupDescribe tells it; GROUP_ID_NOT_FOUND if there is none of that kind."""
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            what = "not found" if group is None else "is not a consumer group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
        return self._answer(ticket, described(group, self.consumers.image.topics, self.settings.consumer_assignors))

    # Offsets.

    def commit(
        self, ticket: Ticket, request: OffsetCommitRequest, api_version: int, now: Moment
    ) -> CoordinatorDecision:
        out = Outcome()
        out.answer(ticket, self.commits.commit(request, api_version, out, now))
        return self._decision(out)

    def may_commit(self, commit: TopicCommit, now: Moment) -> bool:
        """Whether it may be appended, to be replayed by `replay_commit` before anything else is decided.

        False, or KafkaError, where `commit` has to see to it. The member has been heard of; nothing else has changed.
        """
        return self.commits.may_commit(commit, now)

    def replay_commit(self, commit: TopicCommit, now: Moment) -> None:
        """What it was encoded to, at that moment, is in the log."""
        self.commits.replay_topic(commit, now)

    def commit_in_transaction(
        self,
        ticket: Ticket,
        request: TxnOffsetCommitRequest,
        topics: Sequence[OffsetCommitRequestTopic],
        now: Moment,
    ) -> CoordinatorDecision:
        """Of these of its topics, with their ids; answered as `commit`."""
        out = Outcome()
        out.answer(ticket, self.commits.commit_in_transaction(request, topics, out, now))
        return self._decision(out)

    def fetch_offsets(
        self, ticket: Ticket, request: OffsetFetchRequestGroup, *, require_stable: bool = False
    ) -> CoordinatorDecision:
        return self._answer(ticket, self.commits.fetch(request, require_stable=require_stable))

    def delete_offsets(self, ticket: Ticket, request: OffsetDeleteRequest) -> CoordinatorDecision:
        out = Outcome()
        out.answer(ticket, self.commits.delete(request, out))
        return self._decision(out)

    # Administration.

    def describe(self, ticket: Ticket, group_id: str) -> CoordinatorDecision:
        """A classic group as DescribeGroups tells it; GROUP_ID_NOT_FOUND if there is none of that kind."""
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            what = "not found" if group is None else "is not a classic group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
        stable = group.state is State.STABLE
        described = DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            protocol_type=group.protocol_type_name,
            protocol_data=(group.protocol_name or "") if stable else "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(group.protocol_name) if stable else b"",
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )
        return self._answer(ticket, described)

    def list_groups(self, ticket: Ticket) -> CoordinatorDecision:
        groups = [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type_name,
                group_state=group.state_name,
                group_type=group.type_name,
            )
            for group in self.groups.values()
        ]
        return self._answer(ticket, ListGroupsResponse(groups=groups))

    def delete_most_offsets(self, group_id: str) -> CoordinatorDecision:
        """Before a group is deleted: as many of its offsets as one batch holds, if there are more than that.

        To be asked again until nothing is written: a group may hold more offsets than a batch can.
        """
        out = Outcome()
        group, partitions = self.groups.get(group_id), self.offsets.partitions_of(group_id)
        limit = max(1, min(MAX_RECORDS_PER_CLEANUP, MAX_CLEANUP_CHARACTERS // (len(group_id) + MAX_NAME_LENGTH)))
        if group is not None and len(partitions) > limit:
            try:
                group.check_delete()
            except KafkaError:
                return self._decision(out)  # As `delete_group` will say.
            out.records += [offset_tombstone(group_id, *each) for each in islice(partitions, limit)]
        return self._decision(out)

    def delete_group(self, ticket: Ticket, group_id: str) -> CoordinatorDecision:
        """Itself with the offsets that `delete_most_offsets` has left, all or nothing."""
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        group.check_delete()
        out = Outcome()
        out.records += [offset_tombstone(group_id, *each) for each in self.offsets.partitions_of(group_id)]
        out.records += group.tombstones()
        out.answer(ticket, DeletableGroupResult(group_id=group_id))
        return self._decision(out)

    # Decisions.

    @property
    def next_deadline_ms(self) -> int | None:
        return self.timers.next_deadline_ms

    def _answer(self, ticket: Ticket, response: Struct) -> CoordinatorDecision:
        return CoordinatorDecision((), ((ticket, response),), self.timers.next_deadline_ms)

    def _decision(self, out: Outcome) -> CoordinatorDecision:
        return out.decision(self.timers.next_deadline_ms)
