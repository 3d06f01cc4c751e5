"""Nobody is told that a log ends before where he was told that it ends: a new leader waits until it knows."""

from __future__ import annotations

from odradek.sim.history import Bounds, History, Partition


def check(history: History) -> list[str]:
    told: dict[Partition, dict[str, list[tuple[int, int]]]] = {}
    broken = []
    for index, event in enumerate(history.events):
        history.forget_lost(told, event)
        if isinstance(event, Bounds):
            earlier = told.setdefault(event.partition, {}).setdefault(event.observer, [])
            most = max((end for when, end in earlier if when < event.asked_at), default=0)
            if event.log_end_offset < most:
                broken.append(f"{event.partition} was told to end at {most} and then at {event.log_end_offset}")
            earlier.append((index, event.log_end_offset))
    return broken
