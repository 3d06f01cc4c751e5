"""Records by their timestamps: what ListOffsets asks for.

Indexes say in which segment, and from where on, the record can be: a few reads. From there on headers are read, and
then the records of the batch that is found, which may be large and compressed. So that is a `TimeSearch`, which a
worker carries out; it shares nothing with the log but files.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from odradek.ids import NO_TIMESTAMP, Offset
from odradek.ports import File
from odradek.protocol.errors import KafkaError
from odradek.protocol.records.batch import TIMESTAMP_TYPE_BIT, BatchHeader, decode_fields
from odradek.storage.segment import Segment, read_batch, read_headers
from odradek.values import value

logger = logging.getLogger(__name__)


@value
class TimestampOffset:
    """A record's timestamp and offset."""

    timestamp: int
    offset: Offset


class TimeSearch:
    """Looks in one segment, as far as it goes now, for the first record that is late enough; a job for a worker."""

    __slots__ = ("_file", "_from_offset", "_path", "_position", "_size", "_timestamp", "end_offset", "segment")

    def __init__(self, segment: Segment, timestamp: int, *, from_offset: int, end_offset: Offset) -> None:
        self.segment = segment
        self.end_offset = end_offset
        """Where to go on from if nothing is found."""
        self._timestamp = timestamp
        self._from_offset = from_offset
        self._file: File = segment.file
        self._path = segment.path
        self._size = segment.size
        self._position = max(segment.position_before_timestamp(timestamp), segment.position_before(from_offset))

    def __call__(self) -> TimestampOffset | None:
        for position, header in read_headers(self._file, self._path, self._position, self._size):
            if header.max_timestamp >= self._timestamp and header.last_offset >= self._from_offset:
                found = self._first_in_batch(position, header)
                if found is not None:
                    return found
        return None

    def _first_in_batch(self, position: int, header: BatchHeader) -> TimestampOffset | None:
        if header.attributes & TIMESTAMP_TYPE_BIT:  # All records have the same one, so nothing need be unpacked.
            return TimestampOffset(header.max_timestamp, Offset(max(header.base_offset, self._from_offset)))
        timestamp, from_offset = self._timestamp, self._from_offset
        try:
            for some in decode_fields(read_batch(self._file, self._path, position, header.size)):
                for _, _, _, time, offset in some:
                    if time >= timestamp and offset >= from_offset:
                        return TimestampOffset(time, Offset(offset))
        except KafkaError as wrong:  # Records that lie (ADR 23) shall not keep anyone from finding those behind them.
            logger.warning(
                "Searching %s by time, cannot read its batch at %d: %s", self._path, header.base_offset, wrong
            )
        return None


def next_search(
    segments: Sequence[Segment], timestamp: int, *, from_offset: int, end_offset: Offset
) -> TimeSearch | None:
    """The search of the first segment that has a record as late, some of its offsets being `from_offset` or later."""
    for number, segment in enumerate(segments, start=1):
        end = Offset(segments[number].base_offset) if number < len(segments) else end_offset
        if from_offset < end and segment.largest_timestamp() >= timestamp:
            return TimeSearch(segment, timestamp, from_offset=from_offset, end_offset=end)
    return None


def largest(segments: Sequence[Segment]) -> int:
    """The largest timestamp of all, -1 if there is none."""
    return max((segment.largest_timestamp() for segment in segments), default=NO_TIMESTAMP)
