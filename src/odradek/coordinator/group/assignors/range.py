"""The `range` assignor: of each topic every subscriber gets one run of partitions, and the runs are equally long.

Members are taken in the same order for every topic, so topics with as many partitions and the same subscribers are
co-partitioned: who has partition 3 of one has partition 3 of the other. It is not sticky.
"""

from __future__ import annotations

from odradek.coordinator.group.assignors.spec import Assignment, GroupSpec, MemberSpec
from odradek.ids import Uuid


def assign_range(spec: GroupSpec) -> dict[str, Assignment]:
    members = sorted(spec.members, key=_order)
    subscribers: dict[Uuid, int] = {}
    for member in members:
        for topic in member.topics:
            subscribers[topic] = subscribers.get(topic, 0) + 1
    handed_out = dict.fromkeys(subscribers, 0)
    """How many subscribers of a topic have got their run."""
    assigned: dict[str, Assignment] = {}
    for member in members:
        runs = {}
        for topic in member.topics:
            run = _run(spec.partition_counts[topic], subscribers[topic], handed_out[topic])
            handed_out[topic] += 1
            if run:
                runs[topic] = run
        assigned[member.member_id] = runs
    return assigned


def _order(member: MemberSpec) -> tuple[bool, str]:
    """Static members first and by their instance ids, so that their runs stay when they come back under another id."""
    return (member.instance_id is None, member.instance_id or member.member_id)


def _run(partitions: int, subscribers: int, position: int) -> tuple[int, ...]:
    """The partitions of the subscriber at that position; the first ones get the remainder, one each."""
    quota, extra = divmod(partitions, subscribers)
    start = position * quota + min(position, extra)
    return tuple(range(start, start + quota + (position < extra)))
