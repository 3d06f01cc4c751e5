"""Which segments of a log are too old, too many, or before its start."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.ids import NO_TIMESTAMP
from odradek.storage.config import LogConfig
from odradek.storage.segment import Segment


def count_deletable(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
    now_ms: int,
) -> int:
    """How many segments, counted from the oldest, may go: nothing at or above the high watermark ever does.

    If it is all of them, the caller rolls first: a log always has an active segment.
    """
    ends = [segment.base_offset for segment in segments[1:]] + [log_end_offset]
    offered = 0
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    for segment, end in zip(segments, ends, strict=True):
        is_active = offered == len(segments) - 1
        if end > high_watermark or (is_active and not segment.size):
            break
        too_much = config.retention_bytes >= 0 and "delete" in config.cleanup_policy and excess >= segment.size
        if not ((not is_active and end <= log_start_offset) or too_much or _is_expired(segment, config, now_ms)):
            break
        excess -= segment.size
        offered += 1
    return offered


def _is_expired(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    """By its largest timestamp; one without any timestamp counts from when it was first seen by this process."""
    if config.retention_ms < 0 or "delete" not in config.cleanup_policy:
        return False
    largest = segment.largest_timestamp()
    return now_ms - (segment.created_ms if largest == NO_TIMESTAMP else largest) > config.retention_ms
