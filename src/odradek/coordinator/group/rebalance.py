"""How a classic group passes from one generation to the next, and what heartbeats, timers and departures do to that."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.coordinator.group.classic import TRANSITIONS, ClassicGroup, ClassicMember, Event, State
from odradek.coordinator.group.consumer_protocol import PROTOCOL_TYPE, read_assignment, subscribed_topics
from odradek.coordinator.group.records import GroupMetadataValue
from odradek.coordinator.group.settings import GroupSettings
from odradek.coordinator.shard import Moment, Outcome, Timers
from odradek.decisions import Ticket
from odradek.metadata.image.topics import TopicsImage
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedFrame
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from odradek.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity, MemberResponse
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

UNKNOWN_MEMBER_ID = ""

SESSION, JOIN, SYNC = "session", "join", "sync"
"""The first part of the keys of a classic group's timers."""


class Rebalances:
    """The phases of a rebalance, for all classic groups of a shard."""

    def __init__(self, settings: GroupSettings, timers: Timers) -> None:
        self.settings = settings
        self.timers = timers
        self._initial_delays: dict[str, tuple[int, int]] = {}
        """By group id: the delay under way, and how much longer all of them together may last."""

    # Beginning.

    def rebalance_or_complete(self, group: ClassicGroup, out: Outcome, now: Moment) -> None:
        """Somebody came, went or changed."""
        if group.state is State.PREPARING_REBALANCE:
            self.maybe_complete_join(group, out, now)
        elif Event.REBALANCE in TRANSITIONS[group.state]:
            self.prepare(group, out, now)

    def prepare(self, group: ClassicGroup, out: Outcome, now: Moment) -> None:
        """Every member has to join again."""
        if group.state is State.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
                self.end_sync(group, member, out, now, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_syncs.clear()
        self.timers.cancel((SYNC, group.group_id))
        if group.state is State.EMPTY:
            # The first of several members that are just being started: more time lets them share one rebalance.
            delay_ms = self.settings.initial_rebalance_delay_ms
            self._delay(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0), now)
            group.move(Event.REBALANCE, now.wall_ms)
            return
        group.move(Event.REBALANCE, now.wall_ms)
        if group.all_joined:
            self.complete_join(group, out, now)
        else:
            self._await_joins(group, now)

    def maybe_complete_join(self, group: ClassicGroup, out: Outcome, now: Moment) -> None:
        if (
            group.state is State.PREPARING_REBALANCE
            and group.previous_state is not State.EMPTY  # An initial rebalance ends with its delay, not before.
            and group.all_joined
        ):
            self.complete_join(group, out, now)

    def join_timeout(self, group: ClassicGroup, out: Outcome, now: Moment) -> None:
        """The time to join is over, unless it was an initial delay in which more members came."""
        if group.state is not State.PREPARING_REBALANCE:
            return
        delay_ms, remaining_ms = self._initial_delays.pop(group.group_id, (0, 0))
        if group.new_member_added and remaining_ms:
            group.new_member_added = False
            next_ms = min(self.settings.initial_rebalance_delay_ms, remaining_ms)
            self._delay(group, next_ms, max(remaining_ms - delay_ms, 0), now)
        else:
            self.complete_join(group, out, now)

    def complete_join(self, group: ClassicGroup, out: Outcome, now: Moment) -> None:
        """Go on without those who have not joined; the leader gets everyone's metadata, the others wait for it."""
        self.timers.cancel((JOIN, group.group_id))
        self._initial_delays.pop(group.group_id, None)
        late = [each for each in group.members.values() if each.join_ticket is None and each.instance_id is None]
        for member in late:
            group.remove(member.member_id)
            self.end_session(group, member.member_id)
        if group.members and not group.elect_joined_leader():
            # Static members alone, none of which has joined: their sessions end, or one of them comes back.
            self._await_joins(group, now)
            return
        group.next_generation(now.wall_ms)
        if group.state is State.EMPTY:
            out.records.append(group.record((), {}, leader_id=None))
            return
        for member_id, member in group.members.items():
            ticket, member.join_ticket = member.join_ticket, None
            if ticket is not None:
                out.answer(ticket, joined(group, member_id))
            member.is_new = False
            self.extend_session(group, member, now)
            group.pending_syncs[member_id] = None
        group.awaiting_join = 0
        self.timers.set((SYNC, group.group_id), now.monotonic_ms + group.rebalance_timeout_ms)

    def _await_joins(self, group: ClassicGroup, now: Moment) -> None:
        self.timers.set((JOIN, group.group_id), now.monotonic_ms + group.rebalance_timeout_ms)

    def _delay(self, group: ClassicGroup, delay_ms: int, remaining_ms: int, now: Moment) -> None:
        self._initial_delays[group.group_id] = delay_ms, remaining_ms
        self.timers.set((JOIN, group.group_id), now.monotonic_ms + delay_ms)

    # Assignments.

    def sync(self, group: ClassicGroup, ticket: Ticket, request: SyncGroupRequest, out: Outcome, now: Moment) -> None:
        """The leader's assignment goes to the log and then to everyone; the others wait for that."""
        _check_sync(group, request)
        member = group.members[request.member_id]
        if group.state is State.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._synced(group, member.member_id)
        if group.state is State.STABLE:
            out.answer(ticket, _synced(group, member.assignment))
            return
        if member.sync_ticket is not None:  # It asks again; only its newest request is answered with the assignment.
            out.answer(member.sync_ticket, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_ticket = ticket
        if group.leader_id != member.member_id:
            return
        assignments = {each.member_id: each.assignment for each in request.assignments}
        out.records.append(group.record(group.members.values(), assignments, leader_id=group.leader_id))
        for waiting in group.members.values():
            if waiting.sync_ticket is not None:
                out.answer(waiting.sync_ticket, _synced(group, assignments.get(waiting.member_id, b"")))
                self.extend_session(group, waiting, now)

    def adopt(self, group: ClassicGroup, content: GroupMetadataValue) -> None:
        """What the group decided is in the log now: an assignment, or a static member under its new id."""
        for held in content.members:
            member = group.members.get(held.member_id)
            if member is None:
                member = group.replacement
                assert member is not None
                assert member.instance_id is not None
                old_id = group.static_members[member.instance_id]
                self.end_session(group, old_id)
                group.replace(old_id, member)
            member.assignment = held.assignment
            member.sync_ticket = None
        group.replacement = None
        if group.state is State.COMPLETING_REBALANCE and content.members:
            group.move(Event.ASSIGNED, content.current_state_timestamp)

    def refused(self, group: ClassicGroup, code: ErrorCode, out: Outcome, now: Moment) -> None:
        """What the group decided could not be written: those who wait for an assignment have to join again."""
        group.replacement = None
        if group.state is State.COMPLETING_REBALANCE:
            for member in group.members.values():
                self.end_sync(group, member, out, now, code)
            self.prepare(group, out, now)

    def dismiss(self, group: ClassicGroup, code: ErrorCode, out: Outcome, now_ms: int) -> None:
        """The group is gone from here; everyone who waits for it is told so."""
        for member in group.members.values():
            ticket = group.end_join(member)
            if ticket is not None:
                out.answer(ticket, join_error(code, member.member_id))
            if member.sync_ticket is not None:
                out.answer(member.sync_ticket, SyncGroupResponse(error_code=code))
                member.sync_ticket = None
        group.move(Event.DELETED, now_ms)

    def sync_timeout(self, group: ClassicGroup, out: Outcome, now: Moment) -> None:
        """Those who joined and never asked for their assignment are gone."""
        if group.state not in (State.COMPLETING_REBALANCE, State.STABLE) or not group.pending_syncs:
            return
        for member_id in list(group.pending_syncs):
            group.remove(member_id)
            self.end_session(group, member_id)
        self.prepare(group, out, now)

    def end_sync(self, group: ClassicGroup, member: ClassicMember, out: Outcome, now: Moment, code: ErrorCode) -> None:
        """Answer an open SyncGroup with an error."""
        if member.sync_ticket is not None:
            out.answer(member.sync_ticket, SyncGroupResponse(error_code=code))
            member.sync_ticket = None
            self.extend_session(group, member, now)

    def _synced(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_syncs.pop(member_id, None)
        if not group.pending_syncs:
            self.timers.cancel((SYNC, group.group_id))

    # Sessions.

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest, now: Moment) -> ErrorCode:
        if group.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self.extend_session(group, group.members[request.member_id], now)
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING_REBALANCE else ErrorCode.NONE

    def extend_session(self, group: ClassicGroup, member: ClassicMember, now: Moment) -> None:
        deadline_ms = now.monotonic_ms + member.session_timeout_ms
        self.timers.set((SESSION, group.group_id, member.member_id), deadline_ms)

    def end_session(self, group: ClassicGroup, member_id: str) -> None:
        self.timers.cancel((SESSION, group.group_id, member_id))

    def session_timeout(self, group: ClassicGroup, member_id: str, out: Outcome, now: Moment) -> None:
        """Nothing was heard of a member for too long."""
        member = group.members.get(member_id)
        if member is None:
            if member_id in group.pending_joins:
                group.remove(member_id)
                self._complete_if_all_joined(group, out, now)
        elif not member.is_waiting:
            self._remove(group, member_id, out)
            if group.state is State.PREPARING_REBALANCE:
                self._complete_if_all_joined(group, out, now)
            else:
                self.rebalance_or_complete(group, out, now)

    def _complete_if_all_joined(self, group: ClassicGroup, out: Outcome, now: Moment) -> None:
        if group.state is State.PREPARING_REBALANCE and group.all_joined:
            self.complete_join(group, out, now)

    def _remove(self, group: ClassicGroup, member_id: str, out: Outcome) -> None:
        """Take a member out; should it still wait to join, it is told to begin anew."""
        self.end_session(group, member_id)
        removed = group.remove(member_id)
        assert removed is not None
        if removed.join_ticket is not None:
            out.answer(removed.join_ticket, join_error(ErrorCode.UNKNOWN_MEMBER_ID))
        if removed.sync_ticket is not None:
            out.answer(removed.sync_ticket, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))

    # Departures.

    def leave(self, group: ClassicGroup, request: LeaveGroupRequest, out: Outcome, now: Moment) -> list[MemberResponse]:
        """Each on its own: one that is not a member does not keep the others from leaving."""
        if group.state is State.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        responses = []
        for member in request.members:
            code = ErrorCode.NONE
            try:
                self._leave(group, member, out)
            except KafkaError as refused:
                code = refused.code
            responses.append(
                MemberResponse(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code)
            )
        if any(response.error_code == ErrorCode.NONE for response in responses):
            if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
                self.rebalance_or_complete(group, out, now)
            else:
                self.maybe_complete_join(group, out, now)
        return responses

    def _leave(self, group: ClassicGroup, member: MemberIdentity, out: Outcome) -> None:
        member_id, instance_id = member.member_id, member.group_instance_id
        if member_id == UNKNOWN_MEMBER_ID:  # An administrator knows the instance id alone.
            if instance_id is None or instance_id not in group.static_members:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            self._remove(group, group.static_members[instance_id], out)
        elif member_id in group.pending_joins:
            group.remove(member_id)
            self.end_session(group, member_id)
        else:
            group.check_member(member_id, instance_id)
            self._remove(group, member_id, out)


def joined(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    """What a member of the current generation is told; its leader also hears of all the others."""
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member_id,
        members=everyone(group.members.values(), group.protocol_name) if group.leader_id == member_id else [],
    )


def everyone(members: Iterable[ClassicMember], protocol: str | None) -> list[JoinGroupResponseMember]:
    """What a leader assigns by."""
    return [
        JoinGroupResponseMember(
            member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata(protocol)
        )
        for member in members
    ]


def join_error(code: ErrorCode, member_id: str = UNKNOWN_MEMBER_ID) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id)


def _synced(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )


def _check_sync(group: ClassicGroup, request: SyncGroupRequest) -> None:
    if group.state is State.DEAD:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation_id:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol_name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _differ(asked: str | None, agreed: str | None) -> bool:
    return asked is not None and agreed is not None and asked != agreed


def leaves_some_out(group: ClassicGroup, topics: TopicsImage) -> bool:
    """Whether nobody is assigned some partitions that members of a stable group are subscribed to."""
    if group.state is not State.STABLE or group.protocol_type != PROTOCOL_TYPE:
        return False
    members = group.members.values()
    subscribed = subscribed_topics(member.metadata(group.protocol_name) for member in members)
    assigned: dict[str, set[int]] = {}
    try:
        for content in {member.assignment: None for member in members if member.assignment}:
            for each in read_assignment(content).assigned_partitions:
                assigned.setdefault(each.topic, set()).update(each.partitions)
    except MalformedFrame:
        return False
    return any(
        name in topics.by_name and not assigned.get(name, set()).issuperset(range(len(topics.by_name[name].partitions)))
        for name in subscribed or ()
    )
