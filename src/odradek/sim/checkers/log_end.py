"""A log never ends before what was acknowledged, and never starts after its end."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from odradek.sim.history import Acknowledged, Bounds, History, Partition


def check(history: History) -> list[str]:
    ends: dict[Partition, list[tuple[int, int]]] = {}
    broken = []
    for index, event in enumerate(history.events):
        history.forget_lost(ends, event)
        if isinstance(event, Acknowledged) and event.offset >= 0:
            known = ends.setdefault(event.partition, [])
            end = event.offset + len(event.records)
            known.append((index, max(end, known[-1][1]) if known else end))
        elif isinstance(event, Bounds):
            owed = _owed(ends.get(event.partition, ()), event.asked_at)
            if event.log_end_offset < owed and (event.final or not event.observer):
                broken.append(f"{event.partition} ends at {event.log_end_offset}, {owed} was acknowledged")
            if event.log_start_offset > event.log_end_offset:
                broken.append(f"{event.partition} starts at {event.log_start_offset}, behind its end")
    return broken


def _owed(known: Sequence[tuple[int, int]], asked_at: int) -> int:
    """What had been acknowledged when the question was asked: the answer may be older than what came meanwhile."""
    before = bisect_left(known, (asked_at, -1))
    return known[before - 1][1] if before else 0
