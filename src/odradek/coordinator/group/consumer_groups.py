"""KIP-848 groups of a shard: heartbeats, departures and timeouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from odradek.coordinator.group import consumer_records as records
from odradek.coordinator.group.classic import ClassicGroup
from odradek.coordinator.group.consumer import ConsumerGroup
from odradek.coordinator.group.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
    without_epochs,
)
from odradek.coordinator.group.consumer_migration import downgrade_records, may_downgrade, upgrade_records
from odradek.coordinator.group.consumer_update import Owned, Update, UpdateContext
from odradek.coordinator.group.group import Group
from odradek.coordinator.group.joining import Joiner
from odradek.coordinator.group.rebalance import join_error
from odradek.coordinator.group.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from odradek.coordinator.group.settings import GroupSettings
from odradek.coordinator.shard import CoordinatorDecision, Moment, Outcome, Timers
from odradek.metadata.image import EMPTY_IMAGE, Image
from odradek.metadata.image.configs import ALL_BROKERS, BROKER_RESOURCE, GROUP_RESOURCE
from odradek.metadata.image.topics import TopicChanges
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.consumer_group_heartbeat import (
    Assignment as AssignmentMessage,
)
from odradek.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from odradek.protocol.messages.sync_group import SyncGroupResponse
from odradek.values import replace

SESSION, REBALANCE = "consumer session", "consumer rebalance"
CLASSIC_JOIN, CLASSIC_SYNC = "consumer group classic join", "consumer group classic sync"
"""The first part of the keys of these groups' timers; group and member follow."""
DOWNGRADED = "consumer group downgraded"
"""Of the timer that looks after a group which has just become a classic one."""

OWN_MEMBER_ID_SINCE = 1
"""From this version of ConsumerGroupHeartbeat on a member brings its id with it."""

_GROUP_KEYS: tuple[type[Message], ...] = (
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)


class ConsumerGroups:
    """All KIP-848 groups among the groups of a shard."""

    def __init__(self, groups: dict[str, Group], settings: GroupSettings, timers: Timers) -> None:
        self.groups = groups
        self.settings = settings
        self.timers = timers
        self.image: Image = EMPTY_IMAGE
        self.replays: dict[type[Message], Callable[[Any, Any], None]] = dict.fromkeys(_GROUP_KEYS, self._replay)
        self.timeouts: dict[str, Callable[..., None]] = {
            SESSION: self._session_timeout,
            REBALANCE: self._rebalance_timeout,
            CLASSIC_JOIN: self._session_timeout,
            CLASSIC_SYNC: self._session_timeout,
        }

    # The log and the cluster.

    def _replay(self, key: Any, content: Message | None) -> None:
        group = self.groups.get(key.group_id)
        if content is None and not isinstance(group, ConsumerGroup):
            return
        if content is None and isinstance(key, ConsumerGroupMetadataKey):
            del self.groups[key.group_id]
            return
        if not isinstance(group, ConsumerGroup):
            # It is new, or only its offsets were known: those make a group of their own until there is another.
            group = self.groups[key.group_id] = ConsumerGroup(key.group_id)
        group.replay(key, content)

    def loaded(self, now: Moment) -> None:
        """Members are given their time anew: who is left to be heard of has not been silent here."""
        for group in self._all():
            for member in group.members.values():
                self.extend_session(group.group_id, member, now)
                if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                    self._await_revocation(group.group_id, member, now)

    def learn(self, image: Image, topics: TopicChanges | None) -> None:
        """The cluster agreed on something; None if everything about topics may be another."""
        self.image = image
        if topics is None:
            for group in self._all():
                group.refresh, group.touched_topics = True, None
            return
        came_or_went = dict.fromkeys(topic.name for topic in topics.deleted)
        came_or_went.update(dict.fromkeys(each.topic.name for each in topics.created))
        if not came_or_went:
            return
        for group in self._all():
            if group.regex_counts:
                if group.touched_topics is not None or not group.refresh:
                    group.touched_topics = {**(group.touched_topics or {}), **came_or_went}
                group.refresh = True
            elif any(name in group.name_counts for name in came_or_went):
                group.refresh = True

    def refused(self, decision: CoordinatorDecision, now: Moment) -> None:
        """What a group had seen of the cluster is not in the log: it has to look again.

        And members that were to be gone are still there, so their sessions must end some other time.
        """
        for group_id in dict.fromkeys(
            record.key.group_id  # type: ignore[attr-defined]
            for record in decision.records
            if type(record.key) in self.replays
        ):
            group = self.groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                group.refresh, group.touched_topics = True, None
                for member in group.members.values():
                    if self.timers.deadline_ms((SESSION, group_id, member.member_id)) is None:
                        self.extend_session(group_id, member, now)

    def looked_at(self, group: ConsumerGroup) -> None:
        """The group has seen all that the cluster agreed on so far."""
        group.refresh, group.touched_topics = False, {}

    def _all(self) -> Iterable[ConsumerGroup]:
        return (group for group in self.groups.values() if isinstance(group, ConsumerGroup))

    def around(self, group_id: str, now: Moment) -> UpdateContext:
        return UpdateContext(
            topics=self.image.topics,
            metadata_offset=self.image.provenance.offset,
            assignors=self.settings.consumer_assignors,
            assignment_interval_ms=self._configured(
                group_id, "consumer.assignment.interval.ms", self.settings.consumer_assignment_interval_ms
            ),
            now_ms=now.wall_ms,
        )

    def _configured(self, group_id: str, key: str, default: int) -> int:
        """What is set for the group itself counts before what is set for the broker, and that before the file."""
        configs = self.image.configs
        for resource, name, known_as in (
            (GROUP_RESOURCE, group_id, key),
            (BROKER_RESOURCE, str(self.settings.broker_id), f"group.{key}"),
            (BROKER_RESOURCE, ALL_BROKERS, f"group.{key}"),
        ):
            given = configs.of(resource, name).get(known_as)
            if given is not None:
                return int(given)
        return default

    # Heartbeats.

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        joiner: Joiner,
        may_see: Callable[[str], bool] | None,
        out: Outcome,
        now: Moment,
    ) -> ConsumerGroupHeartbeatResponse:
        """A member comes, stays or goes."""
        self._check(request, joiner.api_version)
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._leave(request, out, now)
        group = self._group_to_join(request, out)
        self.check_size(group, request.member_id)
        owned: Owned | None = None
        if request.topic_partitions is not None:
            owned = {each.topic_id: each.partitions for each in request.topic_partitions}
        before = self._member(group, request, joiner, owned, out)
        after = _updated(before, request, joiner)
        around = replace(self.around(group.group_id, now), may_see=may_see)
        after_step = Update(group, around, out.records).follow(before, after, owned)
        self.looked_at(group)
        upgraded = self.groups.get(group.group_id)
        if isinstance(upgraded, ClassicGroup):
            self._end_waiting(upgraded, group, out, now)
        self.extend_session(group.group_id, after_step, now)
        self._mind_revocation(group.group_id, after, after_step, now)
        response = ConsumerGroupHeartbeatResponse(
            member_id=after_step.member_id,
            member_epoch=after_step.member_epoch,
            heartbeat_interval_ms=self._configured(
                group.group_id, "consumer.heartbeat.interval.ms", self.settings.consumer_heartbeat_interval_ms
            ),
        )
        if _is_full(request) or after_step.assigned != before.assigned:
            response.assignment = AssignmentMessage(
                topic_partitions=[
                    TopicPartitions(topic_id=topic, partitions=list(partitions))
                    for topic, partitions in without_epochs(after_step.assigned).items()
                ]
            )
        return response

    def _check(self, request: ConsumerGroupHeartbeatRequest, api_version: int) -> None:
        epoch = request.member_epoch
        _refuse(not request.group_id, "GroupId can't be empty.")
        _refuse(request.instance_id == "", "InstanceId can't be empty.")
        _refuse(request.rack_id == "", "RackId can't be empty.")
        needs_id = epoch != JOIN_EPOCH or api_version >= OWN_MEMBER_ID_SINCE
        _refuse(epoch < STATIC_LEAVE_EPOCH, "MemberEpoch is invalid.")
        _refuse(needs_id and not request.member_id, "MemberId can't be empty.")
        if epoch == JOIN_EPOCH:
            _refuse(request.rebalance_timeout_ms == -1, "RebalanceTimeoutMs must be provided in first request.")
            _refuse(
                request.topic_partitions is None or bool(request.topic_partitions),
                "TopicPartitions must be empty when (re-)joining.",
            )
            _refuse(
                request.subscribed_topic_names is None and request.subscribed_topic_regex is None,
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
            )
        _refuse(epoch == STATIC_LEAVE_EPOCH and request.instance_id is None, "InstanceId can't be null.")
        assignors = self.settings.consumer_assignors
        if request.server_assignor is not None and request.server_assignor not in assignors:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {request.server_assignor} is not supported. "
                f"Supported assignors: {', '.join(assignors)}.",
            )

    def _group_to_join(self, request: ConsumerGroupHeartbeatRequest, out: Outcome) -> ConsumerGroup:
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if request.member_epoch != JOIN_EPOCH:
            what = "is not a consumer group" if group is not None else "not found"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} {what}.")
        if group is None:
            return ConsumerGroup(request.group_id)
        assert isinstance(group, ClassicGroup)
        if group.is_empty:
            out.records += group.tombstones()
            return ConsumerGroup(request.group_id)
        return self._upgraded(group, out)

    def _upgraded(self, group: ClassicGroup, out: Outcome) -> ConsumerGroup:
        """The group as it will be once it is of this kind."""
        upgraded = ConsumerGroup(group.group_id)
        made = list(upgrade_records(group, self.image.topics, self.settings))
        for record in made:
            if type(record.key) in self.replays:
                upgraded.replay(record.key, record.value)
        out.records += made
        return upgraded

    def _end_waiting(self, group: ClassicGroup, upgraded: ConsumerGroup, out: Outcome, now: Moment) -> None:
        """Classic members join again. Not before all is decided: one that is refused changes nothing for others."""
        for member in group.members.values():
            ticket = group.end_join(member)
            if ticket is not None:
                out.answer(ticket, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
            if member.sync_ticket is not None:
                out.answer(member.sync_ticket, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
                member.sync_ticket = None
            self.extend_session(group.group_id, upgraded.members[member.member_id], now)

    def check_size(self, group: ConsumerGroup, member_id: str) -> None:
        limit = self.settings.consumer_max_size
        if len(group.members) >= limit and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def _member(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        joiner: Joiner,
        owned: Owned | None,
        out: Outcome,
    ) -> ConsumerMember:
        """The member as it was before this request."""
        joins = request.member_epoch == JOIN_EPOCH
        member_id = request.member_id or joiner.fresh_id
        if request.instance_id is not None:
            static = group.static_member(request.instance_id)
            if joins and static is not None:
                if static.classic is None and static.member_epoch != STATIC_LEAVE_EPOCH:
                    raise KafkaError(
                        ErrorCode.UNRELEASED_INSTANCE_ID,
                        f"Static member {member_id} with instance id {request.instance_id} cannot join the group "
                        f"because the instance id is owned by {static.member_id} member.",
                    )
                return replaced(group, static, member_id, out)
            if not joins:
                check_static(static, member_id, request.instance_id)
        member = group.members.get(member_id) if joins else group.member(member_id)
        if member is None:
            return ConsumerMember(member_id)
        _check_epoch(member, request.member_epoch, owned)
        return member

    def _mind_revocation(self, group_id: str, before: ConsumerMember, after: ConsumerMember, now: Moment) -> None:
        if after == before:
            return
        if after.state is MemberState.UNREVOKED_PARTITIONS:
            self._await_revocation(group_id, after, now)
        else:
            self.timers.cancel((REBALANCE, group_id, after.member_id))

    # Departures.

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest, out: Outcome, now: Moment
    ) -> ConsumerGroupHeartbeatResponse:
        group = self.groups.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            what = "not found" if group is None else "is not a consumer group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} {what}.")
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            member = check_static(group.static_member(request.instance_id), request.member_id, request.instance_id)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            # Its place is kept until its session ends; only what it should give up is free at once.
            away = replace(member, member_epoch=STATIC_LEAVE_EPOCH, pending_revocation={})
            out.records.append(records.current_record(group.group_id, away))
        else:
            self.remove(group, [member], out, now)
        return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)

    def remove(self, group: ConsumerGroup, members: Sequence[ConsumerMember], out: Outcome, now: Moment) -> None:
        gone = {member.member_id: None for member in members}
        if may_downgrade(group, gone, len(group.members) - len(gone), self.settings):
            out.records += downgrade_records(group, gone, None, self.image.topics, now.wall_ms)
            self.timers.set((DOWNGRADED, group.group_id, True), now.monotonic_ms)
        else:
            Update(group, self.around(group.group_id, now), out.records).leave(members)
        for member in members:
            for kind in self.timeouts:
                self.timers.cancel((kind, group.group_id, member.member_id))

    # Timers.

    def extend_session(self, group_id: str, member: ConsumerMember, now: Moment) -> None:
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        else:
            timeout_ms = self._configured(
                group_id, "consumer.session.timeout.ms", self.settings.consumer_session_timeout_ms
            )
        self.timers.set((SESSION, group_id, member.member_id), now.monotonic_ms + timeout_ms)

    def _await_revocation(self, group_id: str, member: ConsumerMember, now: Moment) -> None:
        self.timers.set((REBALANCE, group_id, member.member_id), now.monotonic_ms + member.rebalance_timeout_ms)

    def _session_timeout(self, group_id: str, member_id: str, out: Outcome, now: Moment) -> None:
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup) and member_id in group.members:
            self.remove(group, [group.members[member_id]], out, now)

    def _rebalance_timeout(self, group_id: str, member_id: str, out: Outcome, now: Moment) -> None:
        """Whoever does not give up what it was asked for in time is not a member any more."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup) and member_id in group.members:
            member = group.members[member_id]
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self.remove(group, [member], out, now)


def replaced(group: ConsumerGroup, static: ConsumerMember, member_id: str, out: Outcome) -> ConsumerMember:
    """A static member comes back: under its new id it has what it had."""
    member = replace(static, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    out.records += records.member_tombstones(group.group_id, static.member_id)
    out.records.append(records.member_record(group.group_id, member))
    out.records.append(records.target_record(group.group_id, member_id, group.target_of(static)))
    out.records.append(records.current_record(group.group_id, member))
    return member


def check_static(member: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def _updated(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, joiner: Joiner) -> ConsumerMember:
    """The member with what the request says; what is null has not changed since the member last said it."""
    changes: dict[str, Any] = {"client_id": joiner.client_id, "client_host": joiner.client_host, "classic": None}
    if request.instance_id is not None:
        changes["instance_id"] = request.instance_id
    if request.rack_id is not None:
        changes["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms != -1:
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.server_assignor is not None:
        changes["server_assignor"] = request.server_assignor
    if request.subscribed_topic_names is not None:
        changes["topic_names"] = frozenset(request.subscribed_topic_names)
    if request.subscribed_topic_regex is not None:
        changes["topic_regex"] = request.subscribed_topic_regex
    news = {name: said for name, said in changes.items() if getattr(member, name) != said}
    return replace(member, **news) if news else member


def _check_epoch(member: ConsumerMember, epoch: int, owned: Owned | None) -> None:
    """A member that begins again may; one that is behind may if an answer of ours can have got lost."""
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return
    if epoch == member.previous_member_epoch and owned is not None and member.holds_only(owned.items()):
        return
    than = "greater" if epoch > member.member_epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {than} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member tells all, as it does when it joins or after an error, and so is to be told all."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    says_all = request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None
    return request.member_epoch == JOIN_EPOCH or says_all


def _refuse(wrong: bool, why: str) -> None:
    if wrong:
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)
