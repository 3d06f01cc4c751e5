"""A classic group: members, the protocol they agreed on, and the state of their rebalance.

A generation begins when all members have joined (PREPARING_REBALANCE), and stands once its leader has handed in the
assignment (COMPLETING_REBALANCE). Only a generation that stands is in the log.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from odradek.coordinator.group.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from odradek.coordinator.group.group import Group
from odradek.coordinator.group.records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from odradek.coordinator.shard import CoordinatorRecord
from odradek.decisions import Ticket
from odradek.protocol.errors import ErrorCode, KafkaError

GROUP_METADATA_VERSION = 3
"""The version Kafka 4.3 writes: the newest without tagged fields."""

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""What a member could speak, in the order it prefers: name and metadata."""


class State(enum.Enum):
    """Where a group is in its rebalance, under the names that clients are told."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(enum.Enum):
    """What moves a group on."""

    REBALANCE = "somebody came, went, or wants another assignment"
    ALL_JOINED = "every member has joined, or the time to join is over"
    NOBODY_LEFT = "the time to join is over and there is no member"
    ASSIGNED = "the leader's assignment is in the log"
    DELETED = "the group was deleted, or its coordinator is elsewhere"


TRANSITIONS: dict[State, dict[Event, State]] = {
    State.EMPTY: {Event.REBALANCE: State.PREPARING_REBALANCE, Event.DELETED: State.DEAD},
    State.PREPARING_REBALANCE: {
        Event.ALL_JOINED: State.COMPLETING_REBALANCE,
        Event.NOBODY_LEFT: State.EMPTY,
        Event.DELETED: State.DEAD,
    },
    State.COMPLETING_REBALANCE: {
        Event.REBALANCE: State.PREPARING_REBALANCE,
        Event.ASSIGNED: State.STABLE,
        Event.DELETED: State.DEAD,
    },
    State.STABLE: {Event.REBALANCE: State.PREPARING_REBALANCE, Event.DELETED: State.DEAD},
    State.DEAD: {Event.DELETED: State.DEAD},
}


class ClassicMember:
    """One member, and the answers it waits for."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_ticket",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_ticket",
    )

    def __init__(
        self,
        member_id: str,
        *,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.join_ticket: Ticket | None = None
        self.sync_ticket: Ticket | None = None
        self.is_new = False
        """Joined without an id, so it cannot send heartbeats before its JoinGroup is answered."""

    @property
    def is_waiting(self) -> bool:
        """Whether it need not send heartbeats, because it waits for an answer of ours."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def renamed(self, member_id: str, protocols: Protocols) -> ClassicMember:
        """The same static member under another id."""
        return ClassicMember(
            member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            protocols=protocols,
            assignment=self.assignment,
        )


class ClassicGroup(Group):
    """State of one group; what may be done with it in which order is told by `rebalance.py`."""

    type_name = "classic"

    def __init__(self, group_id: str, *, now_ms: int) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.previous_state = State.DEAD
        self.state_since_ms: int = now_ms
        """Wall clock; -1 if a record older than version 2 did not tell."""
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """Member id by instance id."""
        self.pending_joins: dict[str, None] = {}
        """Ids that were given out and have not joined yet."""
        self.pending_syncs: dict[str, None] = {}
        self.awaiting_join = 0
        """How many members have an open JoinGroup."""
        self.new_member_added = False
        """Since the initial delay was last looked at; if so, it is prolonged."""
        self.replacement: ClassicMember | None = None
        """A static member under its new id, until the log says so too."""
        self.subscribed_topics: frozenset[str] | None = None
        """None where they are not known, because the members speak another protocol."""
        self._support: dict[str, int] = {}
        """How many members speak each protocol."""

    # What every group answers.

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type_name(self) -> str:
        return self.protocol_type or ""

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def awaits_members(self) -> bool:
        return bool(self.pending_joins)

    def check_offset_commit(
        self, *, member_id: str, instance_id: str | None, generation_id: int, api_version: int, transactional: bool
    ) -> None:
        if self.state is State.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation_id < 0 and self.state is State.EMPTY:
            return  # An admin client, or a consumer that assigns partitions itself.
        if generation_id >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if generation_id != self.generation_id:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif self.state is not State.EMPTY and not transactional:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if self.state is State.COMPLETING_REBALANCE and not transactional:
            # It knows the generation and not yet its assignment, so it cannot say what it has consumed of it.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_offset_fetch(self, *, member_id: str | None, member_epoch: int) -> None:
        if self.state is State.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is in dead state.")

    def check_offset_delete(self) -> None:
        if self.state is State.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is in dead state.")
        if self.state is not State.EMPTY and self.protocol_type != PROTOCOL_TYPE:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_delete(self) -> None:
        if self.state is State.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is in dead state.")
        if self.state is not State.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.protocol_type == PROTOCOL_TYPE
        return topic in self.subscribed_topics

    def offsets_unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.state is State.EMPTY:
            return commit_timestamp_ms if self.state_since_ms < 0 else self.state_since_ms
        if self.state is State.STABLE and self.subscribed_topics is not None:
            return commit_timestamp_ms
        return None

    def tombstones(self) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(GroupMetadataKey(group=self.group_id), None)]

    # Members.

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        """UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID where another has taken over the instance id."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def add(self, member: ClassicMember, protocol_type: str, ticket: Ticket | None) -> None:
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count(member.protocols, 1)
        self.await_join(member, ticket)
        self.pending_joins.pop(member.member_id, None)

    def update(
        self,
        member: ClassicMember,
        *,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        ticket: Ticket,
    ) -> None:
        """A member that joins again."""
        if protocols != member.protocols:
            self._count(member.protocols, -1)
            member.protocols = protocols
            self._count(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self.await_join(member, ticket)

    def remove(self, member_id: str) -> ClassicMember | None:
        """Take a member, or an id that was only given out, out of the group; the next in line becomes leader."""
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.pop(member_id, None)
        removed = self.members.pop(member_id, None)
        if removed is not None:
            self._count(removed.protocols, -1)
            if removed.join_ticket is not None:
                self.awaiting_join -= 1
            if removed.instance_id is not None:
                self.static_members.pop(removed.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return removed

    def replace(self, old_id: str, member: ClassicMember) -> None:
        """A static member goes on under another id; whoever waited under the old one must have been answered."""
        old = self.members.pop(old_id)
        self.end_join(old)
        self._count(old.protocols, -1)
        self.members[member.member_id] = member
        self._count(member.protocols, 1)
        self.pending_syncs.pop(old_id, None)
        if self.leader_id == old_id:
            self.leader_id = member.member_id
        assert member.instance_id is not None
        self.static_members[member.instance_id] = member.member_id

    def await_join(self, member: ClassicMember, ticket: Ticket | None) -> None:
        if (ticket is None) != (member.join_ticket is None):
            self.awaiting_join += 1 if ticket is not None else -1
        member.join_ticket = ticket

    def end_join(self, member: ClassicMember) -> Ticket | None:
        """Who waits for the member's JoinGroup, if anyone, and who does so no longer."""
        ticket = member.join_ticket
        self.await_join(member, None)
        return ticket

    @property
    def all_joined(self) -> bool:
        return self.awaiting_join == len(self.members) and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """Whether a member that has joined leads; where the leader has not, another one takes its place."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_ticket is None:
            for member in self.members.values():
                if member.join_ticket is not None:
                    self.leader_id = member.member_id
                    return True
            return False
        return True

    # Protocols.

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether somebody with these protocols could be a member."""
        if self.state is State.EMPTY:
            return bool(protocol_type and protocols)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(self._support.get(name, 0) == count for name, _ in protocols)

    def _agreed_protocol(self) -> str:
        common = [name for name, speakers in self._support.items() if speakers == len(self.members)]
        return common[0] if len(common) == 1 else select_protocol(self.members.values())

    def _count(self, protocols: Protocols, change: int) -> None:
        support = self._support
        for name, _ in protocols:
            left = support.get(name, 0) + change
            if left:
                support[name] = left
            else:
                del support[name]

    # States.

    def move(self, event: Event, now_ms: int) -> None:
        state = TRANSITIONS[self.state].get(event)
        assert state is not None, f"group {self.group_id} cannot take {event.name} in {self.state.name}"
        self.previous_state, self.state = self.state, state
        self.state_since_ms = now_ms

    def next_generation(self, now_ms: int) -> None:
        """The time to join is over: those who are there are the members of the next generation."""
        self.generation_id += 1
        if self.members:
            self.protocol_name = self._agreed_protocol()
            self.move(Event.ALL_JOINED, now_ms)
        else:
            self.protocol_name = None
            self.move(Event.NOBODY_LEFT, now_ms)
        self.learn_subscriptions()
        self.pending_syncs.clear()

    def learn_subscriptions(self) -> None:
        self.subscribed_topics = None
        if self.protocol_type != PROTOCOL_TYPE:
            return
        if not self.members:
            self.subscribed_topics = frozenset()
        elif self.protocol_name is not None:
            self.subscribed_topics = subscribed_topics(
                member.metadata(self.protocol_name) for member in self.members.values()
            )

    # Records.

    def record(
        self, members: Iterable[ClassicMember], assignments: dict[str, bytes], *, leader_id: str | None
    ) -> CoordinatorRecord:
        """The generation as it goes into the log."""
        held = [
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(self.protocol_name),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in members
        ]
        content = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=leader_id,
            current_state_timestamp=self.state_since_ms,
            members=held,
        )
        return CoordinatorRecord(GroupMetadataKey(group=self.group_id), content, GROUP_METADATA_VERSION)

    @classmethod
    def from_record(cls, group_id: str, content: GroupMetadataValue) -> ClassicGroup:
        """The group as a coordinator finds it in the log: with members it is stable."""
        group = cls(group_id, now_ms=content.current_state_timestamp)
        group.generation_id = content.generation
        group.protocol_type = content.protocol_type or None
        group.protocol_name = content.protocol
        group.leader_id = content.leader if any(held.member_id == content.leader for held in content.members) else None
        group.state = State.STABLE if content.members else State.EMPTY
        for held in content.members:
            member = ClassicMember(
                held.member_id,
                instance_id=held.group_instance_id,
                client_id=held.client_id,
                client_host=held.client_host,
                rebalance_timeout_ms=held.session_timeout if held.rebalance_timeout < 0 else held.rebalance_timeout,
                session_timeout_ms=held.session_timeout,
                protocols=((content.protocol or "", held.subscription),),
                assignment=held.assignment,
            )
            group.add(member, content.protocol_type, None)
        group.learn_subscriptions()
        return group


def empty_group_record(group: ClassicGroup) -> CoordinatorRecord:
    """That the group exists, before it has had a generation."""
    content = GroupMetadataValue(
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp=group.state_since_ms,
        members=[],
    )
    return CoordinatorRecord(GroupMetadataKey(group=group.group_id), content, GROUP_METADATA_VERSION)


def select_protocol(members: Iterable[ClassicMember]) -> str:
    """Each member votes for the first protocol it prefers among those that all speak; most votes win."""
    voters = list(members)
    support: dict[str, int] = {}
    for member in voters:
        for name, _ in member.protocols:
            support[name] = support.get(name, 0) + 1
    votes: dict[str, int] = {}
    for member in voters:
        vote = next(name for name, _ in member.protocols if support[name] == len(voters))
        votes[vote] = votes.get(vote, 0) + 1
    return max(votes, key=votes.__getitem__)


def unique_protocols(protocols: Sequence[tuple[str, bytes]]) -> Protocols:
    """In the order given; of two with one name the first counts."""
    if len(protocols) == 1:
        return (protocols[0],)
    seen: dict[str, bytes] = {}
    for name, metadata in protocols:
        seen.setdefault(name, metadata)
    return tuple(seen.items())
