"""A producer that does everything right is not refused, unless the broker lost records that it may lose."""

from __future__ import annotations

from odradek.sim.history import History, Rejected


def check(history: History) -> list[str]:
    broken = []
    for index, event in enumerate(history.events):
        if isinstance(event, Rejected) and not any(
            history.may_lose(event.partition, earlier) for earlier in history.events[:index]
        ):
            broken.append(f"{event.partition}: {event.producer} was refused without a reason: {event.error}")
    return broken
