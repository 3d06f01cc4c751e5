"""A member of a KIP-848 group: what it asked for, what it holds, and how far it has followed the target assignment."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from odradek.coordinator.group.assignors.spec import Assignment
from odradek.coordinator.group.classic import Protocols
from odradek.ids import Uuid
from odradek.values import value

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""What a member says as its epoch when it comes, goes, or goes for a while and keeps its place."""

Held: TypeAlias = Mapping[Uuid, Mapping[int, int]]
"""Partitions by topic, each with the epoch in which the member got it; no topic without partitions."""

NOT_HELD: Mapping[int, int] = MappingProxyType({})
HOLDS_NOTHING: Held = MappingProxyType({})


class MemberState(enum.IntEnum):
    """Where a member is on its way to the target assignment; the numbers are in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to give partitions up before it may go on to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It is at the newest epoch it can be at, and waits for partitions that others have not given up yet."""
    UNKNOWN = 127
    """Written by a newer coordinator: the member has to begin again."""


@value
class ClassicMembership:
    """How a member that speaks the classic protocol joined a group of this kind."""

    session_timeout_ms: int
    protocols: Protocols


@value
class ConsumerMember:
    """Immutable: the log alone says when one takes the place of another."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    server_assignor: str | None = None
    classic: ClassicMembership | None = None
    assigned: Held = HOLDS_NOTHING
    pending_revocation: Held = HOLDS_NOTHING

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def holds_only(self, owned: Iterable[tuple[Uuid, Iterable[int]]]) -> bool:
        """Whether all of these partitions are assigned to it."""
        return all(index in self.assigned.get(topic, NOT_HELD) for topic, partitions in owned for index in partitions)


def without_epochs(held: Held) -> Assignment:
    return {topic: tuple(sorted(partitions)) for topic, partitions in held.items()}
