"""A producer that does everything right is not refused, unless the broker lost, or never knew, what it may.

It may lose what a power loss took. And a producer it does not know yet may begin with any batch: when the first one
fails on a full disk and the second does not, the first comes too late. Of records that were deleted a start finds the
producer's last batch alone, in a snapshot (in Kafka of all others, too): one before it is out of order.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.sim.history import Bounds, DiskFilled, Event, History, ProcessCrashed, Rejected, Restarted, Sent


def check(history: History) -> list[str]:
    return [
        f"{event.partition}: {event.producer} was refused without a reason: {event.error}"
        for index, event in enumerate(history.events)
        if isinstance(event, Rejected)
        and not any(history.may_lose(event.partition, earlier) for earlier in history.events[:index])
        and not _was_overtaken(event, history.events[:index])
        and not _was_deleted(event, history.events[:index])
    ]


def _was_overtaken(rejected: Rejected, earlier: Sequence[Event]) -> bool:
    """Whether the disk was full and a later batch of the producer was sent as well."""
    if not any(isinstance(event, DiskFilled) for event in earlier):
        return False
    sent = [
        event.records
        for event in earlier
        if isinstance(event, Sent) and (event.producer, event.partition) == (rejected.producer, rejected.partition)
    ]
    return any(records != rejected.records for records in sent[sent.index(rejected.records) :])


def _was_deleted(rejected: Rejected, earlier: Sequence[Event]) -> bool:
    """Whether the batch may have been written, deleted, and forgotten by a start before it was sent again."""
    return (
        any(isinstance(event, ProcessCrashed | Restarted) for event in earlier)
        and any(isinstance(event, Sent) and event.again and event.records == rejected.records for event in earlier)
        and any(
            isinstance(event, Bounds) and event.partition == rejected.partition and event.log_start_offset > 0
            for event in earlier
        )
    )
