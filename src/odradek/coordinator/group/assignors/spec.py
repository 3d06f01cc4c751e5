"""What an assignor is told, and what it answers with."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from odradek.ids import Uuid
from odradek.values import value

Assignment: TypeAlias = Mapping[Uuid, tuple[int, ...]]
"""Partitions in ascending order, by topic; no topic without partitions."""

NOTHING: Assignment = MappingProxyType({})


@value
class MemberSpec:
    """One member as an assignor sees it."""

    member_id: str
    instance_id: str | None
    topics: tuple[Uuid, ...]
    """All that it is subscribed to and that exist, in ascending order."""
    assigned: Assignment
    """The target so far, which may hold topics that it is not subscribed to any more."""


@value
class GroupSpec:
    """A group as an assignor sees it."""

    members: tuple[MemberSpec, ...]
    partition_counts: Mapping[Uuid, int]
    """Of every topic that a member is subscribed to."""

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members are subscribed to the same topics."""
        first = self.members[0].topics
        return all(member.topics is first or member.topics == first for member in self.members)


def frozen(partitions: Mapping[Uuid, list[int]]) -> Assignment:
    """An assignment out of lists in any order; empty ones are left out."""
    return {topic: tuple(sorted(some)) for topic, some in partitions.items() if some}
