"""The same offset holds the same record, for ever and for everyone."""

from __future__ import annotations

from odradek.sim.history import Acknowledged, History, Partition, Read


def check(history: History) -> list[str]:
    known: dict[Partition, dict[int, bytes]] = {}
    broken = []
    for event in history.events:
        history.forget_lost(known, event)
        if isinstance(event, Acknowledged | Read) and event.offset >= 0:
            log = known.setdefault(event.partition, {})
            for offset, record in enumerate(event.records, event.offset):
                before = log.setdefault(offset, record)
                if before != record:
                    broken.append(f"{event.partition}: offset {offset} was {before[:24]!r} and became {record[:24]!r}")
    return broken
