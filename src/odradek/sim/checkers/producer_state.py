"""A producer that does everything right is not refused, unless the broker forgot what it may forget.

It may forget what a power loss took, and, as Kafka's snapshots of producers do, all but the last batch of each when it
starts again: an earlier one that is sent once more is then out of order.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.sim.history import Event, History, PowerLost, ProcessCrashed, Rejected, Restarted, Sent


def check(history: History) -> list[str]:
    return [
        f"{event.partition}: {event.producer} was refused without a reason: {event.error}"
        for index, event in enumerate(history.events)
        if isinstance(event, Rejected)
        and not any(history.may_lose(event.partition, earlier) for earlier in history.events[:index])
        and not _was_followed_and_forgotten(event, history.events[:index])
    ]


def _was_followed_and_forgotten(rejected: Rejected, earlier: Sequence[Event]) -> bool:
    """Whether the node started again after the batch and a later one of its producer had been sent."""
    first_sent = followed = False
    for event in earlier:
        if isinstance(event, Sent) and (event.producer, event.partition) == (rejected.producer, rejected.partition):
            if event.records == rejected.records:
                first_sent = True
            elif first_sent:
                followed = True
        elif isinstance(event, ProcessCrashed | PowerLost | Restarted) and followed:
            return True
    return False
