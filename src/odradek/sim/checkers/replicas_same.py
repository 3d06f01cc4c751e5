"""Replicas that have caught up hold the same records below the watermark."""

from __future__ import annotations

from odradek.sim.history import History, Partition, ReplicaHolds


def check(history: History) -> list[str]:
    first: dict[Partition, ReplicaHolds] = {}
    broken = []
    for event in history.events:
        if isinstance(event, ReplicaHolds):
            other = first.setdefault(event.partition, event)
            start = max(event.log_start_offset, other.log_start_offset)
            end = min(event.high_watermark, other.high_watermark)
            if _between(event, start, end) != _between(other, start, end):
                broken.append(f"{event.partition} is not the same on {other.node} and {event.node} below {end}")
    return broken


def _between(held: ReplicaHolds, start: int, end: int) -> list[tuple[int, bytes]]:
    return [(offset, record) for offset, record in held.records if start <= offset < end]
