"""The `uniform` assignor: as many partitions for every member as can be, and as few moves as that allows.

Where all members are subscribed to the same topics, nobody has more than one partition more than another. Where they
are not, no partition could move to a subscriber that has at least two fewer than its owner.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace

from odradek.coordinator.group.assignors.spec import Assignment, GroupSpec, MemberSpec, frozen
from odradek.ids import Uuid

MAX_ROUNDS = 16
"""Over all topics. Subscriptions for which that is not enough are made up, and what is left to balance is little."""


def assign_uniform(spec: GroupSpec) -> dict[str, Assignment]:
    if spec.is_homogeneous:
        return _assign_homogeneous(spec)
    return _Heterogeneous(spec).assign()


def _assign_homogeneous(spec: GroupSpec) -> dict[str, Assignment]:
    """Whoever has more than its share gives the rest up; that and what was free goes to those who have less."""
    topics = spec.members[0].topics
    total = sum(spec.partition_counts[topic] for topic in topics)
    quota, extras = divmod(total, len(spec.members))
    kept: dict[str, dict[Uuid, list[int]]] = {}
    taken: dict[Uuid, set[int]] = {topic: set() for topic in topics}
    sizes: dict[str, int] = {}
    for member in spec.members:
        held = {topic: _valid(member, topic, spec.partition_counts[topic], taken[topic]) for topic in topics}
        # Those who have one more than the others keep it, as long as there are so many to be had.
        limit = quota
        if extras and sum(map(len, held.values())) > quota:
            limit, extras = quota + 1, extras - 1
        kept[member.member_id], sizes[member.member_id] = _keep(held, limit, taken)
    free = [
        (topic, index) for topic in topics for index in range(spec.partition_counts[topic]) if index not in taken[topic]
    ]
    free.reverse()
    for member in spec.members:
        missing = quota - sizes[member.member_id]
        if missing >= 0 and extras:
            missing, extras = missing + 1, extras - 1
        for _ in range(missing):
            topic, index = free.pop()
            kept[member.member_id].setdefault(topic, []).append(index)
    assert not free, "the members' shares do not add up"
    return {member.member_id: _unless_same(member.assigned, frozen(kept[member.member_id])) for member in spec.members}


def _valid(member: MemberSpec, topic: Uuid, partitions: int, taken: set[int]) -> list[int]:
    """What a member has of a topic, as far as that exists and nobody else has it: the log may say anything."""
    return [index for index in member.assigned.get(topic, ()) if 0 <= index < partitions and index not in taken]


def _keep(held: dict[Uuid, list[int]], limit: int, taken: dict[Uuid, set[int]]) -> tuple[dict[Uuid, list[int]], int]:
    """As much of what a member has as it may keep, and how much that is."""
    kept: dict[Uuid, list[int]] = {}
    size = 0
    for topic, partitions in held.items():
        some = partitions[: limit - size]
        if some:
            kept[topic] = some
            size += len(some)
            taken[topic].update(some)
    return kept, size


def _unless_same(before: Assignment, after: Assignment) -> Assignment:
    """The old one where nothing changed, so that whoever compares the two is done at once."""
    return before if before == after else after


class _Heterogeneous:
    """Members are numbered in the order they are given in, so that every choice has one outcome."""

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._sizes = [0] * len(spec.members)
        self._subscribers: dict[Uuid, list[int]] = {}
        for number, member in enumerate(spec.members):
            for topic in member.topics:
                self._subscribers.setdefault(topic, []).append(number)
        self._owners = {topic: [-1] * spec.partition_counts[topic] for topic in self._subscribers}

    def assign(self) -> dict[str, Assignment]:
        self._keep()
        topics = sorted(self._subscribers, key=self._order)
        for topic in topics:
            self._hand_out(topic)
        shared = [topic for topic in topics if len(self._subscribers[topic]) > 1]
        for _ in range(MAX_ROUNDS):
            moved = [topic for topic in shared if self._balance(topic)]
            if not moved:
                break
        lists: list[dict[Uuid, list[int]]] = [{} for _ in self._spec.members]
        for topic, owners in self._owners.items():
            for index, owner in enumerate(owners):
                lists[owner].setdefault(topic, []).append(index)
        return {
            member.member_id: _unless_same(member.assigned, frozen(held))
            for member, held in zip(self._spec.members, lists, strict=True)
        }

    def _order(self, topic: Uuid) -> tuple[float, int, Uuid]:
        """The topics that load their subscribers most come first: what is left levels out the differences."""
        subscribers = len(self._subscribers[topic])
        return (-self._spec.partition_counts[topic] / subscribers, subscribers, topic)

    def _keep(self) -> None:
        for number, member in enumerate(self._spec.members):
            subscribed = frozenset(member.topics)
            for topic, held in member.assigned.items():
                if topic in subscribed:
                    owners = self._owners[topic]
                    for index in held:
                        if 0 <= index < len(owners) and owners[index] == -1:
                            owners[index] = number
                            self._sizes[number] += 1

    def _hand_out(self, topic: Uuid) -> None:
        """Every free partition goes to the subscriber that has the fewest."""
        owners, sizes = self._owners[topic], self._sizes
        least = [(sizes[number], number) for number in self._subscribers[topic]]
        heapify(least)
        for index, owner in enumerate(owners):
            if owner == -1:
                size, number = least[0]
                owners[index] = number
                sizes[number] = size + 1
                heapreplace(least, (size + 1, number))

    def _balance(self, topic: Uuid) -> bool:
        """Move partitions from those who have most to those who have fewest while that helps; whether any moved."""
        owners, sizes = self._owners[topic], self._sizes
        held: dict[int, list[int]] = {}
        for index, owner in enumerate(owners):
            held.setdefault(owner, []).append(index)
        least = [(sizes[number], number) for number in self._subscribers[topic]]
        heapify(least)
        most = [(-sizes[number], number) for number in held]
        heapify(most)
        moved = False
        while most:
            giver_size, giver = -most[0][0], most[0][1]
            size, taker = least[0]
            if size != sizes[taker]:  # It gave something up since it was queued.
                heapreplace(least, (sizes[taker], taker))
                continue
            if giver_size != sizes[giver]:
                heapreplace(most, (-sizes[giver], giver))
                continue
            if giver_size - size < 2:
                break
            index = held[giver].pop()
            owners[index] = taker
            sizes[taker] += 1
            sizes[giver] -= 1
            heapreplace(least, (sizes[taker], taker))
            if held[giver]:
                heapreplace(most, (-sizes[giver], giver))
            else:
                heappop(most)
            moved = True
        return moved
