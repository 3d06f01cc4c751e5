"""How far into a log a reader may see."""

from __future__ import annotations

from enum import IntEnum

READ_COMMITTED = 1
"""The isolation level of a Fetch or ListOffsets request that wants nothing of open transactions."""


class Visible(IntEnum):
    """What bounds a reader, from the farthest end to the nearest."""

    LOG_END = 0
    """Followers see all there is."""
    HIGH_WATERMARK = 1
    """Consumers see what is committed,"""
    LAST_STABLE = 2
    """and at read_committed nothing of a transaction that is still open, nor behind its first record."""


LOG_END, HIGH_WATERMARK, LAST_STABLE = Visible
"""For the hot path."""


def visible_to(replica_id: int, isolation_level: int) -> Visible:
    """As Kafka has it: the isolation level is of no consequence to replicas, and any but 1 is none."""
    if replica_id >= 0:
        return LOG_END
    return LAST_STABLE if isolation_level == READ_COMMITTED else HIGH_WATERMARK
