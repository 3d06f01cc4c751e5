"""Who reads what: the assignors that the leader of a classic group runs, named and behaving as the Java client's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from odradek.client.cluster import TopicPartition
from odradek.configdef import ConfigError
from odradek.values import value

Assignments: TypeAlias = dict[str, list[TopicPartition]]
"""Partitions by member."""


@value
class MemberSubscription:
    """What a member told the leader when it joined."""

    member_id: str
    topics: tuple[str, ...]
    group_instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1


class Assignor(Protocol):
    """A way to divide partitions among members."""

    @property
    def name(self) -> str: ...

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep what they own while the group rebalances."""

    def assign(self, counts: Mapping[str, int], members: Sequence[MemberSubscription]) -> Assignments:
        """Divide the partitions of topics, given how many each has, among the members subscribed to them."""


class RangeAssignor:
    """Topic by topic: consecutive partitions for each member, the first members getting one more."""

    name = "range"
    is_cooperative = False

    def assign(self, counts: Mapping[str, int], members: Sequence[MemberSubscription]) -> Assignments:
        assigned: Assignments = {member.member_id: [] for member in members}
        for topic in sorted(counts):
            interested = [member for member in _in_order(members) if topic in member.topics]
            if not interested:
                continue
            each, more = divmod(counts[topic], len(interested))
            start = 0
            for place, member in enumerate(interested):
                end = start + each + (place < more)
                assigned[member.member_id] += [TopicPartition(topic, index) for index in range(start, end)]
                start = end
        return assigned


class RoundRobinAssignor:
    """All partitions of all topics dealt out like cards."""

    name = "roundrobin"
    is_cooperative = False

    def assign(self, counts: Mapping[str, int], members: Sequence[MemberSubscription]) -> Assignments:
        assigned: Assignments = {member.member_id: [] for member in members}
        ordered = _in_order(members)
        turn = 0
        for partition in _all_partitions(counts):
            if any(partition.topic in member.topics for member in ordered):
                while partition.topic not in ordered[turn % len(ordered)].topics:
                    turn += 1
                assigned[ordered[turn % len(ordered)].member_id].append(partition)
                turn += 1
        return assigned


class CooperativeStickyAssignor:
    """As even as subscriptions allow, moving as little as possible; what moves is first given up, then given away.

    A partition that still belongs to another member is left out this time: its owner sees that it is gone, gives it up
    and joins again, and only then is it given to the new owner (KIP-429). So no two members ever read it at once.
    """

    name = "cooperative-sticky"
    is_cooperative = True

    def assign(self, counts: Mapping[str, int], members: Sequence[MemberSubscription]) -> Assignments:
        ordered = _in_order(members)
        owners = _owners(counts, ordered)
        assigned: Assignments = {member.member_id: [] for member in ordered}
        for partition, owner in owners.items():
            if owner is not None:
                assigned[owner].append(partition)
        interested = {
            topic: [member.member_id for member in ordered if topic in member.topics] for topic in sorted(counts)
        }
        for partition in _all_partitions(counts):
            if partition not in owners and interested[partition.topic]:
                least = min(interested[partition.topic], key=lambda member_id: len(assigned[member_id]))
                assigned[least].append(partition)
        _even_out(assigned, interested)
        for member_id, partitions in assigned.items():
            partitions[:] = sorted(each for each in partitions if owners.get(each, member_id) == member_id)
        return assigned


_ASSIGNORS: dict[str, Assignor] = {
    "range": RangeAssignor(),
    "roundrobin": RoundRobinAssignor(),
    "cooperative-sticky": CooperativeStickyAssignor(),
}
_JAVA = "org.apache.kafka.clients.consumer."
_JAVA_NAMES = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


def assignors(names: Sequence[str]) -> tuple[Assignor, ...]:
    """The assignors of `partition.assignment.strategy`, by their own names or by those of the Java classes."""
    found = []
    for given in names:
        name = _JAVA_NAMES.get(given.removeprefix(_JAVA), given)
        if name not in _ASSIGNORS:
            raise ConfigError(
                f"partition.assignment.strategy: there is no {given}, only {', '.join(_ASSIGNORS)}",
                "partition.assignment.strategy",
            )
        found.append(_ASSIGNORS[name])
    return tuple(found)


def _in_order(members: Sequence[MemberSubscription]) -> list[MemberSubscription]:
    """Static members first, by their lasting names; so a restart changes nothing."""
    return sorted(
        members, key=lambda member: (member.group_instance_id is None, member.group_instance_id or member.member_id)
    )


def _all_partitions(counts: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for topic in sorted(counts) for index in range(counts[topic])]


def _owners(counts: Mapping[str, int], members: Sequence[MemberSubscription]) -> dict[TopicPartition, str | None]:
    """Who may keep what: claims of the youngest generation count; where two claim the same, None, so that both give up.

    What nobody claims is left out.
    """
    claims: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in members:
        for partition in member.owned:
            if partition.topic not in member.topics or partition.partition >= counts.get(partition.topic, 0):
                continue
            generation, _ = claims.get(partition, (-2, None))
            if member.generation_id > generation:
                claims[partition] = (member.generation_id, member.member_id)
            elif member.generation_id == generation:
                claims[partition] = (generation, None)
    return {partition: owner for partition, (_, owner) in claims.items()}


def _even_out(assigned: Assignments, interested: Mapping[str, Sequence[str]]) -> None:
    """Move partitions from members with many to members with fewer until no move makes it more even."""
    moved = True
    while moved:
        moved = False
        loads = [len(partitions) for partitions in assigned.values()]
        if max(loads, default=0) - min(loads, default=0) < 2:
            return
        for giver in sorted(assigned, key=lambda member_id: -len(assigned[member_id])):
            for partition in reversed(assigned[giver]):
                taker = min(interested[partition.topic], key=lambda member_id: len(assigned[member_id]))
                if len(assigned[giver]) - len(assigned[taker]) >= 2:
                    assigned[giver].remove(partition)
                    assigned[taker].append(partition)
                    moved = True
                    break
            if moved:
                break
