"""What a consumer has seen stays: nothing is shown that a crash of the process could take back.

In topics that flush every message, the same holds for a loss of power.
"""

from __future__ import annotations

from odradek.sim.checkers.final import final_logs, final_starts, was_deleted
from odradek.sim.history import History, Partition, Read


def check(history: History) -> list[str]:
    seen: dict[Partition, dict[int, bytes]] = {}
    for event in history.events:
        history.forget_lost(seen, event)
        if isinstance(event, Read):
            seen.setdefault(event.partition, {}).update(enumerate(event.records, event.offset))
    logs = final_logs(history)
    starts = final_starts(history)
    return [
        f"{partition}: {record[:24]!r} was read at {offset} and is not there"
        for partition, records in seen.items()
        for offset, record in records.items()
        if not was_deleted(partition, starts)
        and offset >= starts.get(partition, 0)
        and logs.get(partition, {}).get(offset) != record
    ]
