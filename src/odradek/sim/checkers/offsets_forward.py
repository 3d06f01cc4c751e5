"""A group's offset in a partition never goes back, for the groups here whose members only read on.

A member goes on where the last owner's commit says, and one that lost the partition cannot commit any more. So a
commit of less than was committed before is one that should have been refused; but for a group that was overtaken by a
deletion of records: it begins again where the log begins, and nodes that were killed may have forgotten where that was.
"""

from __future__ import annotations

from odradek.sim.history import GROUPS, CommitAcknowledged, History, OffsetRead, Partition, TrimSent


def check(history: History) -> list[str]:
    furthest: dict[tuple[str, Partition], list[tuple[int, int]]] = {}
    trimmed: dict[Partition, int] = {}
    broken = []
    for index, event in enumerate(history.events):
        if history.may_lose(GROUPS, event):
            furthest.clear()
        elif isinstance(event, TrimSent):
            trimmed[event.partition] = max(event.before, trimmed.get(event.partition, 0))
        elif isinstance(event, CommitAcknowledged | OffsetRead):
            known = furthest.setdefault((event.group, event.partition), [])
            if isinstance(event, OffsetRead):
                owed = max((offset for at, offset in known if at < event.asked_at), default=-1)
                if event.offset < owed:
                    broken.append(f"{event.group}: {event.partition} went back from {owed} to {event.offset}")
            elif event.offset < max((offset for _, offset in known), default=-1) < trimmed.get(event.partition, 0):
                known.clear()
            known.append((index, event.offset))
    return broken
