"""Members that speak the classic protocol inside a KIP-848 group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

For them an epoch is a generation. Nobody leads and nobody waits: a join is answered at once with the member's own
epoch, and a heartbeat tells a member to join again whenever there is a step to take.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.coordinator.group.classic import ClassicGroup, Protocols, unique_protocols
from odradek.coordinator.group.consumer import ConsumerGroup
from odradek.coordinator.group.consumer_groups import (
    CLASSIC_JOIN,
    CLASSIC_SYNC,
    DOWNGRADED,
    ConsumerGroups,
    check_static,
    replaced,
)
from odradek.coordinator.group.consumer_member import (
    ClassicMembership,
    ConsumerMember,
    MemberState,
    without_epochs,
)
from odradek.coordinator.group.consumer_migration import (
    DISABLED,
    downgrade_records,
    identified,
    may_downgrade,
    written_assignment,
)
from odradek.coordinator.group.consumer_protocol import PROTOCOL_TYPE, read_subscription
from odradek.coordinator.group.consumer_update import Update
from odradek.coordinator.group.joining import MEMBER_ID_REQUIRED_SINCE, Joiner
from odradek.coordinator.group.rebalance import UNKNOWN_MEMBER_ID, Rebalances, join_error
from odradek.coordinator.shard import Moment, Outcome
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedFrame
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity, MemberResponse
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.values import replace


class ClassicMembers:
    """Classic members of all KIP-848 groups of a shard."""

    def __init__(self, consumers: ConsumerGroups, rebalances: Rebalances) -> None:
        self._consumers = consumers
        self._rebalances = rebalances
        self._timers = consumers.timers
        self.timeouts: dict[str, Callable[..., None]] = {DOWNGRADED: self._downgraded}

    # Joining.

    def join(
        self, group: ConsumerGroup, request: JoinGroupRequest, joiner: Joiner, out: Outcome, now: Moment
    ) -> JoinGroupResponse:
        member_id = request.member_id or joiner.fresh_id
        self._consumers.check_size(group, member_id)
        self._check_policy(group)
        protocols = unique_protocols([(each.name, each.metadata) for each in request.protocols])
        _check_protocols(group, member_id, request.protocol_type, protocols)
        is_unknown = request.member_id == UNKNOWN_MEMBER_ID
        if is_unknown and request.group_instance_id is None and joiner.api_version >= MEMBER_ID_REQUIRED_SINCE:
            return join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        try:
            subscription = read_subscription(protocols[0][1])
        except MalformedFrame:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "Malformed embedded consumer protocol.") from None
        takes_over = group.static_member(request.group_instance_id) if is_unknown else None
        before = self._member(group, request, member_id, takes_over, out)
        after = replace(
            before,
            instance_id=request.group_instance_id or before.instance_id,
            rack_id=subscription.rack_id or before.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms
            if request.rebalance_timeout_ms != -1
            else request.session_timeout_ms,
            client_id=joiner.client_id,
            client_host=joiner.client_host,
            topic_names=frozenset(subscription.topics),
            classic=ClassicMembership(request.session_timeout_ms, protocols),
        )
        topics = self._consumers.image.topics
        owned = identified(((each.topic, each.partitions) for each in subscription.owned_partitions), topics)
        stepped = Update(group, self._consumers.around(group.group_id, now), out.records).follow(before, after, owned)
        self._consumers.looked_at(group)
        self._timers.cancel((CLASSIC_JOIN, group.group_id, member_id))
        if takes_over is not None and may_downgrade(
            group, (takes_over.member_id,), len(group.members), self._consumers.settings
        ):
            gone = (takes_over.member_id,)
            out.records += downgrade_records(group, gone, stepped, topics, now.wall_ms)
            self._timers.set((DOWNGRADED, group.group_id, False), now.monotonic_ms)
        else:
            self._consumers.extend_session(group.group_id, stepped, now)
            self._await(CLASSIC_SYNC, group, stepped, now)
        return JoinGroupResponse(
            member_id=stepped.member_id,
            generation_id=stepped.member_epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=protocols[0][0],
        )

    def _check_policy(self, group: ConsumerGroup) -> None:
        if self._consumers.settings.consumer_migration_policy == DISABLED:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Cannot join the consumer group {group.group_id} with the classic protocol because the group "
                "migration is disabled.",
            )

    def _member(
        self,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        member_id: str,
        takes_over: ConsumerMember | None,
        out: Outcome,
    ) -> ConsumerMember:
        """The member as it was before it joined, again or for the first time."""
        if takes_over is not None:
            return replaced(group, takes_over, member_id, out)
        if request.group_instance_id is not None and request.member_id != UNKNOWN_MEMBER_ID:
            return check_static(group.static_member(request.group_instance_id), member_id, request.group_instance_id)
        return group.members.get(member_id) or ConsumerMember(member_id)

    # Being a member.

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, now: Moment) -> SyncGroupResponse:
        member, classic = self._classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        protocol, metadata = classic.protocols[0]
        for said, agreed in ((request.protocol_type, PROTOCOL_TYPE), (request.protocol_name, protocol)):
            if said is not None and said != agreed:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._await(CLASSIC_JOIN, group, member, now)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._timers.cancel((CLASSIC_SYNC, group.group_id, member.member_id))
        self._consumers.extend_session(group.group_id, member, now)
        return SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=written_assignment(without_epochs(member.assigned), self._consumers.image.topics, metadata),
        )

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, now: Moment) -> ErrorCode:
        member, _ = self._classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        self._consumers.extend_session(group.group_id, member, now)
        has_a_step_to_take = (
            member.member_epoch < group.epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and _can_get_more(group, member))
        )
        if not has_a_step_to_take:
            return ErrorCode.NONE
        self._await(CLASSIC_JOIN, group, member, now)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def leave(
        self, group: ConsumerGroup, request: LeaveGroupRequest, out: Outcome, now: Moment
    ) -> list[MemberResponse]:
        gone: dict[str, ConsumerMember] = {}
        answers = []
        for identity in request.members or [MemberIdentity(member_id=request.member_id)]:
            member_id, code = identity.member_id, ErrorCode.NONE
            try:
                member = self._leaving(group, identity)
                member_id = member.member_id
                gone[member_id] = member
            except KafkaError as refused:
                code = refused.code
            answers.append(
                MemberResponse(member_id=member_id, group_instance_id=identity.group_instance_id, error_code=code)
            )
        if gone:
            self._consumers.remove(group, list(gone.values()), out, now)
        return answers

    def _leaving(self, group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if instance_id is not None and member_id == UNKNOWN_MEMBER_ID:  # An administrator knows no more.
            static = group.static_member(instance_id)
            member_id = "" if static is None else static.member_id
        member, _ = self._classic_member(group, member_id, instance_id)
        return member

    def _classic_member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> tuple[ConsumerMember, ClassicMembership]:
        if instance_id is None:
            member = group.member(member_id)
        else:
            member = check_static(group.static_member(instance_id), member_id, instance_id)
        if member.classic is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
        return member, member.classic

    # Time.

    def _await(self, kind: str, group: ConsumerGroup, member: ConsumerMember, now: Moment) -> None:
        """The member has its rebalance timeout; asking again for the same does not prolong it."""
        key = (kind, group.group_id, member.member_id)
        if kind == CLASSIC_SYNC or self._timers.deadline_ms(key) is None:
            self._timers.set(key, now.monotonic_ms + member.rebalance_timeout_ms)

    def _downgraded(self, group_id: str, rebalance: bool, out: Outcome, now: Moment) -> None:
        """The group is a classic one now, with members that have to be heard of and, mostly, to join again."""
        group = self._consumers.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return
        for member in group.members.values():
            self._rebalances.extend_session(group, member, now)
        if rebalance:
            self._rebalances.rebalance_or_complete(group, out, now)


def _check_protocols(group: ConsumerGroup, member_id: str, protocol_type: str, protocols: Protocols) -> None:
    """One of its protocols must be known to all classic members."""
    others = [
        frozenset(name for name, _ in member.classic.protocols)
        for member in group.members.values()
        if member.classic is not None
    ]
    shared = any(all(name in names for names in others) for name, _ in protocols)
    if protocol_type != PROTOCOL_TYPE or not shared:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported.")


def _check_generation(member: ConsumerMember, generation_id: int) -> None:
    if member.member_epoch != generation_id:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {generation_id} is not equal to the member epoch {member.member_epoch} "
            f"of member {member.member_id}.",
        )


def _can_get_more(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether something of its target has been given up by others meanwhile."""
    return any(
        group.is_free(topic, index) for topic, partitions in group.target_of(member).items() for index in partitions
    )
