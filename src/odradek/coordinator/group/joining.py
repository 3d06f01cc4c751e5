"""JoinGroup of classic groups: who may become a member, under which id, and what that starts."""

from __future__ import annotations

from odradek.coordinator.group.classic import (
    ClassicGroup,
    ClassicMember,
    Protocols,
    State,
    select_protocol,
    unique_protocols,
)
from odradek.coordinator.group.consumer_protocol import gives_up_some
from odradek.coordinator.group.rebalance import (
    SESSION,
    UNKNOWN_MEMBER_ID,
    Rebalances,
    everyone,
    join_error,
    joined,
)
from odradek.coordinator.shard import Moment, Outcome
from odradek.decisions import Ticket
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.join_group import JoinGroupRequest
from odradek.protocol.messages.sync_group import SyncGroupResponse
from odradek.values import value

MEMBER_ID_REQUIRED_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9


@value
class Joiner:
    """Who sends a JoinGroup, as far as it is not in the request."""

    client_id: str
    client_host: str
    api_version: int
    fresh_id: str
    """A UUID that nobody has, should a member id be needed."""


class Join:
    """One JoinGroup request to a classic group."""

    def __init__(
        self,
        rebalances: Rebalances,
        group: ClassicGroup,
        ticket: Ticket,
        request: JoinGroupRequest,
        joiner: Joiner,
        out: Outcome,
        now: Moment,
    ) -> None:
        self._rebalances = rebalances
        self._settings = rebalances.settings
        self._group = group
        self._ticket = ticket
        self._request = request
        self._joiner = joiner
        self._out = out
        self._now = now
        self._protocols: Protocols = unique_protocols([(each.name, each.metadata) for each in request.protocols])
        self._rebalance_timeout_ms = (
            request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms
        )

    def decide(self) -> None:
        """Answer at once, or leave the ticket with the member until its generation begins."""
        group, member_id = self._group, self._request.member_id
        if not self._is_accepted(member_id):
            group.remove(member_id)
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if group.state is State.DEAD:
            self._refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif not group.supports(self._request.protocol_type, self._protocols):
            self._refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif member_id == UNKNOWN_MEMBER_ID:
            self._join_as_new()
        elif member_id in group.pending_joins and self._request.group_instance_id is None:
            self._add(member_id)
        else:
            try:
                group.check_member(member_id, self._request.group_instance_id)
            except KafkaError as refused:
                self._refuse(refused.code)
                return
            self._join_again(group.members[member_id])

    def _is_accepted(self, member_id: str) -> bool:
        """A known member always is, as long as the group has room for those who came before it."""
        group, max_size = self._group, self._settings.max_size
        member = group.members.get(member_id)
        state = group.state
        if state is State.PREPARING_REBALANCE:
            # Those who have joined count, so that the last of too many are turned away.
            return group.awaiting_join < max_size or (member is not None and member.join_ticket is not None)
        if state is State.EMPTY or state is State.DEAD:
            return True
        return member is not None or len(group.members) < max_size

    # New members.

    def _join_as_new(self) -> None:
        group, joiner, instance_id = self._group, self._joiner, self._request.group_instance_id
        if instance_id is None:
            member_id = f"{joiner.client_id}-{joiner.fresh_id}"
            if joiner.api_version < MEMBER_ID_REQUIRED_SINCE:
                self._add(member_id)
                return
            # Told its id first (KIP-394), a client that tries again is recognized and leaves no dead member behind.
            group.pending_joins[member_id] = None
            self._rebalances.timers.set(
                (SESSION, group.group_id, member_id), self._now.monotonic_ms + self._request.session_timeout_ms
            )
            self._refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
            return
        member_id = f"{instance_id}-{joiner.fresh_id}"
        old_id = group.static_members.get(instance_id)
        if old_id is None:
            self._add(member_id)
        else:
            self._take_over(group.members[old_id], member_id)

    def _add(self, member_id: str) -> None:
        group, request = self._group, self._request
        member = ClassicMember(
            member_id,
            instance_id=request.group_instance_id,
            client_id=self._joiner.client_id,
            client_host=self._joiner.client_host,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=self._protocols,
        )
        member.is_new = True
        if group.state is State.PREPARING_REBALANCE and group.previous_state is State.EMPTY:
            group.new_member_added = True
        group.add(member, request.protocol_type, self._ticket)
        self._rebalances.timers.set(
            (SESSION, group.group_id, member_id), self._now.monotonic_ms + self._settings.new_member_join_timeout_ms
        )
        self._rebalances.rebalance_or_complete(group, self._out, self._now)

    # Known members.

    def _join_again(self, member: ClassicMember) -> None:
        group = self._group
        changed = member.protocols != self._protocols
        match group.state:
            case State.PREPARING_REBALANCE:
                self._update(member)
            case State.COMPLETING_REBALANCE if not changed:
                # Its answer was lost; the generation stands.
                self._out.answer(self._ticket, joined(group, member.member_id))
            case State.STABLE if not changed and group.leader_id != member.member_id:
                self._out.answer(self._ticket, joined(group, member.member_id))
            case _:
                # New metadata, or a leader that knows of changes which its metadata does not show (partitions added).
                self._update(member)

    def _update(self, member: ClassicMember) -> None:
        if member.join_ticket is not None:
            self._out.answer(member.join_ticket, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        self._renew(member)
        self._rebalances.rebalance_or_complete(self._group, self._out, self._now)

    def _renew(self, member: ClassicMember) -> None:
        self._group.update(
            member,
            protocols=self._protocols,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            session_timeout_ms=self._request.session_timeout_ms,
            ticket=self._ticket,
        )

    # Static members that were restarted.

    def _take_over(self, old: ClassicMember, new_id: str) -> None:
        """Its predecessor is fenced; in a stable group nothing else need change (KIP-345).

        Unless that one was about to join again, having given up partitions for others: with Kafka they are nobody's
        then, until something else makes the group join.
        """
        group, out, now = self._group, self._out, self._now
        member = old.renamed(new_id, self._protocols)
        if group.state is State.STABLE and not gives_up_some(old.metadata(group.protocol_name), old.assignment):
            others = [each for each in group.members.values() if each is not old]
            if select_protocol([*others, member]) == group.protocol_name:
                self._take_over_quietly(old, member)
                return
        self._fence(old)
        self._rebalances.end_session(group, old.member_id)
        group.replace(old.member_id, member)
        self._renew(member)
        self._rebalances.extend_session(group, member, now)
        if group.state is State.PREPARING_REBALANCE:
            self._rebalances.maybe_complete_join(group, out, now)
        else:
            # Also while the leader assigns: it was told the old id, so the new one would get no partitions.
            self._rebalances.prepare(group, out, now)

    def _take_over_quietly(self, old: ClassicMember, member: ClassicMember) -> None:
        group = self._group
        member.rebalance_timeout_ms = self._rebalance_timeout_ms
        member.session_timeout_ms = self._request.session_timeout_ms
        was_leader = group.leader_id == old.member_id
        leader_id = member.member_id if was_leader else group.leader_id
        members = [member if each is old else each for each in group.members.values()]
        assignments = {each.member_id: each.assignment for each in members}
        group.replacement = member
        self._out.records.append(group.record(members, assignments, leader_id=leader_id))
        self._rebalances.extend_session(group, member, self._now)
        answer = joined(group, member.member_id)
        if self._joiner.api_version >= SKIP_ASSIGNMENT_SINCE and was_leader:
            # Older clients would begin to assign; they are told the old leader's id, which makes them followers.
            answer.leader = member.member_id
            answer.skip_assignment = True
            answer.members = everyone(members, group.protocol_name)
        self._out.answer(self._ticket, answer)

    def _fence(self, old: ClassicMember) -> None:
        if old.join_ticket is not None:
            self._out.answer(old.join_ticket, join_error(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
        if old.sync_ticket is not None:
            self._out.answer(old.sync_ticket, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))

    def _refuse(self, code: ErrorCode, member_id: str | None = None) -> None:
        self._out.answer(self._ticket, join_error(code, self._request.member_id if member_id is None else member_id))
