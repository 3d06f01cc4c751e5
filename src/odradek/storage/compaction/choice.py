"""Which logs are worth a cleaning, and how far each may be cleaned."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from odradek.storage.config import LONG_MAX
from odradek.storage.kept_log import KeptLog
from odradek.storage.segment import Segment
from odradek.values import value

logger = logging.getLogger(__name__)


@value
class Cleanable:
    """What a cleaning of a log would do now."""

    first_dirty_offset: int
    """Before it, every key has but one record."""
    end_offset: int
    """Behind the last segment that may be cleaned."""
    clean_bytes: int
    dirty_bytes: int
    """Of what may be cleaned; segments count as whole."""
    overdue_ms: int
    """For how long a record has waited beyond `max.compaction.lag.ms`."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, min_dirty_ratio: float) -> bool:
        if not self.dirty_bytes:
            return False
        return self.overdue_ms > 0 or self.dirty_ratio > min_dirty_ratio


def cleanable(log: KeptLog, now_ms: int) -> Cleanable:
    """What of it may be cleaned: sealed segments that are synced, wholly before the last stable offset, and older than
    `min.compaction.lag.ms`."""
    segments = log.segments
    first_dirty = first_dirty_offset(log)
    first_dirty_number = _number_of(segments, first_dirty)
    end_number = _first_uncleanable(log, first_dirty_number, now_ms)
    return Cleanable(
        first_dirty_offset=first_dirty,
        end_offset=segments[end_number].base_offset,
        clean_bytes=sum(segment.size for segment in segments[: min(first_dirty_number, end_number)]),
        dirty_bytes=sum(segment.size for segment in segments[first_dirty_number:end_number]),
        overdue_ms=_overdue_ms(segments[first_dirty_number:-1], log.config.max_compaction_lag_ms, now_ms),
    )


def first_dirty_offset(log: KeptLog) -> int:
    """As the last cleaning has left it; the log's start, where what is said of it cannot be."""
    said = log.cleaned_offset
    return said if log.log_start_offset <= said <= log.log_end_offset else log.log_start_offset


def _first_uncleanable(log: KeptLog, first_dirty_number: int, now_ms: int) -> int:
    """The number of the first segment that has to stay as it is: at the latest the active one."""
    segments = log.segments
    limit = min(log.last_stable_offset, log.recovery_point)
    lag_ms = log.config.min_compaction_lag_ms
    for number in range(len(segments) - 1):
        if segments[number + 1].base_offset > limit:
            return number
        if lag_ms > 0 and number >= first_dirty_number and segments[number].largest_timestamp() > now_ms - lag_ms:
            return number
    return len(segments) - 1


def _overdue_ms(dirty: Sequence[Segment], max_lag_ms: int, now_ms: int) -> int:
    """By the time of the oldest segment's first batch."""
    if max_lag_ms == LONG_MAX:
        return 0
    times = (time for segment in dirty if (time := segment.first_timestamp()) > 0)
    return max(now_ms - max_lag_ms - min(times, default=now_ms), 0)


def _number_of(segments: Sequence[Segment], offset: int) -> int:
    """Which one holds this offset, or would."""
    number = len(segments) - 1
    while number and segments[number].base_offset > offset:
        number -= 1
    return number
