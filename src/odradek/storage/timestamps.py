"""Records by their timestamps: what ListOffsets asks for."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from odradek.ids import NO_TIMESTAMP, Offset
from odradek.protocol.errors import KafkaError
from odradek.protocol.records.batch import TIMESTAMP_TYPE_BIT, BatchHeader, decode_records
from odradek.storage.segment import Segment
from odradek.values import value

logger = logging.getLogger(__name__)


@value
class TimestampOffset:
    """A record's timestamp and offset."""

    timestamp: int
    offset: Offset


def first_at_least(segments: Sequence[Segment], timestamp: int, *, log_start_offset: int) -> TimestampOffset | None:
    """Timestamp and offset of the first record, from the log's start on, that is at least as late."""
    for segment in segments:
        if segment.largest_timestamp() < timestamp:
            continue
        for position, header in segment.headers(segment.position_before_timestamp(timestamp)):
            if header.max_timestamp < timestamp or header.last_offset < log_start_offset:
                continue
            found = _first_in_batch(segment, position, header, timestamp, log_start_offset)
            if found is not None:
                return found
    return None


def largest(segments: Sequence[Segment], *, log_start_offset: int) -> TimestampOffset | None:
    """The largest timestamp and the offset of the first record that has it."""
    newest = max((segment.largest_timestamp() for segment in segments), default=NO_TIMESTAMP)
    if newest == NO_TIMESTAMP:
        return None
    return first_at_least(segments, newest, log_start_offset=log_start_offset)


def _first_in_batch(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, log_start_offset: int
) -> TimestampOffset | None:
    if header.attributes & TIMESTAMP_TYPE_BIT:  # All records have the same timestamp, so nothing need be unpacked.
        return TimestampOffset(header.max_timestamp, Offset(max(header.base_offset, log_start_offset)))
    try:
        for record in decode_records(segment.read_batch(position, header.size)):
            if record.timestamp >= timestamp and record.offset >= log_start_offset:
                return TimestampOffset(record.timestamp, Offset(record.offset))
    except KafkaError as wrong:  # Records that lie (ADR 23) shall not keep anyone from finding those behind them.
        logger.warning("Searching %s by time, cannot read its batch at %d: %s", segment.path, header.base_offset, wrong)
    return None
