"""A group's offset in a partition never goes back, for the groups here whose members only read on.

A member goes on where the last owner's commit says, and one that lost the partition cannot commit any more. So a
commit of less than was committed before is one that should have been refused.
"""

from __future__ import annotations

from odradek.sim.history import GROUPS, CommitAcknowledged, History, OffsetRead, Partition


def check(history: History) -> list[str]:
    furthest: dict[tuple[str, Partition], list[tuple[int, int]]] = {}
    broken = []
    for index, event in enumerate(history.events):
        if history.may_lose(GROUPS, event):
            furthest.clear()
        elif isinstance(event, CommitAcknowledged | OffsetRead):
            known = furthest.setdefault((event.group, event.partition), [])
            if isinstance(event, OffsetRead):
                owed = max((offset for at, offset in known if at < event.asked_at), default=-1)
                if event.offset < owed:
                    broken.append(f"{event.group}: {event.partition} went back from {owed} to {event.offset}")
            known.append((index, event.offset))
    return broken
