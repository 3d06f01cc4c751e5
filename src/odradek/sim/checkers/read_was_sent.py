"""Whoever reads a partition reads what was sent to it: nothing of another one, nor of an earlier topic of its name."""

from __future__ import annotations

from odradek.sim.history import History, Partition, Read, Sent


def check(history: History) -> list[str]:
    sent: dict[Partition, set[bytes]] = {}
    for event in history.events:
        if isinstance(event, Sent):
            sent.setdefault(event.partition, set()).update(event.records)
    if not sent:
        return []
    return [
        f"{event.partition} has {record[:48]!r} at {offset}, which nobody sent there"
        for event in history.events
        if isinstance(event, Read)
        for offset, record in enumerate(event.records, event.offset)
        if record not in sent.get(event.partition, ())
    ]
