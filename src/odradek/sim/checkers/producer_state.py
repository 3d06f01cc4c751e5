"""A producer that does everything right is not refused, unless the broker forgot, or never knew, what it may.

It may forget what a power loss took, and, as Kafka's snapshots of producers do, all but the last batch of each when it
starts again: an earlier one that is sent once more is then out of order. And a producer it does not know yet may begin
with any batch: when the first one fails on a full disk and the second does not, the first comes too late.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.sim.history import DiskFilled, Event, History, PowerLost, ProcessCrashed, Rejected, Restarted, Sent


def check(history: History) -> list[str]:
    return [
        f"{event.partition}: {event.producer} was refused without a reason: {event.error}"
        for index, event in enumerate(history.events)
        if isinstance(event, Rejected)
        and not any(history.may_lose(event.partition, earlier) for earlier in history.events[:index])
        and not _was_overtaken(event, history.events[:index])
    ]


def _was_overtaken(rejected: Rejected, earlier: Sequence[Event]) -> bool:
    """Whether a later batch of the producer was sent as well, and the node then started again or had a full disk."""
    sent = followed = filled = False
    for event in earlier:
        if isinstance(event, Sent) and (event.producer, event.partition) == (rejected.producer, rejected.partition):
            sent |= event.records == rejected.records
            followed |= sent and event.records != rejected.records
        elif isinstance(event, DiskFilled):
            filled = True
        if followed and (filled or isinstance(event, ProcessCrashed | PowerLost | Restarted)):
            return True
    return False
