"""No acknowledged record is lost.

A process crash takes nothing that was acknowledged; a power loss may, except in topics that flush every message.
"""

from __future__ import annotations

from odradek.sim.checkers.final import final_logs, final_starts, was_deleted
from odradek.sim.history import Acknowledged, History, Partition


def check(history: History) -> list[str]:
    owed: dict[Partition, dict[int, bytes]] = {}
    owed_somewhere: dict[Partition, list[bytes]] = {}
    for event in history.events:
        if isinstance(event, Acknowledged):
            if event.offset < 0:
                owed_somewhere.setdefault(event.partition, []).extend(event.records)
            else:
                owed.setdefault(event.partition, {}).update(enumerate(event.records, event.offset))
        history.forget_lost(owed, event)
        history.forget_lost(owed_somewhere, event)
    logs = final_logs(history)
    starts = final_starts(history)
    broken = []
    for partition, records in owed.items():
        if was_deleted(partition, starts):
            continue
        log = logs.get(partition, {})
        for offset, record in records.items():
            if offset >= starts.get(partition, 0) and log.get(offset) != record:
                broken.append(f"{partition}: {record[:24]!r} was acknowledged at {offset} and is not there")
    for partition, anywhere in owed_somewhere.items():
        present = set(logs.get(partition, {}).values())
        if not starts.get(partition, 0) and not was_deleted(partition, starts):
            broken += [
                f"{partition}: {record[:24]!r} was acknowledged and is nowhere"
                for record in anywhere
                if record not in present
            ]
    return broken
