"""Up to where a log is committed."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.ids import Offset


def next_high_watermark(current: Offset, leader_end: Offset, counted_ends: Iterable[Offset]) -> Offset:
    """The offset below which the leader and every counted follower hold the log.

    Never moves back: consumers may already have read up to `current`.
    """
    return max(current, min((leader_end, *counted_ends)))
