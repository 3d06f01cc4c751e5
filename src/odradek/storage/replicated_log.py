"""How a log takes over what another has: batches that have their offsets already, from the leader.

A part of `Log`, as `KeptLog` is: the same object. (Hot: each batch is appended by every follower.)
"""

from __future__ import annotations

import struct
from typing import TypeAlias

from odradek.ids import NO_TIMESTAMP, Offset
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.batch import (
    ATTRIBUTES_POSITION,
    CONTROL_BIT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    crc_matches,
    read_header,
)
from odradek.protocol.records.crc import crc32c
from odradek.storage.kept_log import KeptLog
from odradek.storage.segment import Segment

_unpack_replicated = struct.Struct(">qiiBIhi8xqqhi4x").unpack_from
"""Of a header what a follower looks at: all but the base timestamp and the count of records."""

_Replicated: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int]


class ReplicatedLog(KeptLog):
    """The log of one partition, as far as a follower changes it."""

    __slots__ = ()

    def append_as_follower(self, batches: memoryview, now_ms: int) -> Offset:
        """Write batches that have their offsets from the leader; the last offset in the log then.

        One write for all of them if they fit into the active segment. A partial batch at the end is left out, as a
        Fetch may bring one.
        """
        position = 0
        total = len(batches)
        end_offset: int = self.log_end_offset
        latest_timestamp = NO_TIMESTAMP
        headers = []
        while position + HEADER_SIZE <= total:
            header = _unpack_replicated(batches, position)
            base_offset, length, _, magic, crc, _, last_delta, max_timestamp, _, _, _ = header
            end = position + LENGTH_OVERHEAD + length
            if end > total:
                break
            if (
                length < HEADER_SIZE - LENGTH_OVERHEAD
                or magic != MAGIC
                or base_offset < end_offset
                or last_delta < 0
                or crc32c(batches[position + ATTRIBUTES_POSITION : end]) != crc
            ):
                raise _does_not_follow(batches[position:], end_offset)
            headers.append(header)
            end_offset = base_offset + last_delta + 1
            if max_timestamp > latest_timestamp:
                latest_timestamp = max_timestamp
            position = end
        self._told_ms = now_ms
        if headers:
            data = batches if position == total else batches[:position]
            self._write_replicated(data, headers, end_offset - 1, latest_timestamp, now_ms)
        return Offset(end_offset - 1)

    # Inside

    def _write_replicated(
        self, data: memoryview, headers: list[_Replicated], last_offset: int, latest_timestamp: int, now_ms: int
    ) -> None:
        """Write these bytes at once, if one segment takes them all, then note the batches in them."""
        segment = self._segments.active
        if (
            segment.size + len(data) > self._segment_bytes
            or segment.index_full
            or last_offset > segment.last_indexable_offset
            or latest_timestamp > segment.roll_timestamp
        ):
            if len(headers) > 1:
                self._write_one_by_one(data, headers, now_ms)
                return
            segment = self._segment_for(len(data), last_offset, now_ms, at_offset=headers[0][0])
        epochs = self.leader_epochs
        for header in headers:
            if header[2] != epochs.latest:
                epochs.assign(header[2], header[0])
        segment.write(data)
        if not segment.size:
            self._set_roll_timestamp(headers[0][7])
        position = 0
        for header in headers:
            (
                base_offset,
                length,
                _,
                _,
                _,
                attributes,
                last_delta,
                max_timestamp,
                producer_id,
                producer_epoch,
                base_sequence,
            ) = header
            size = LENGTH_OVERHEAD + length
            last_offset = base_offset + last_delta
            segment.note(size, last_offset, max_timestamp, self._index_interval_bytes)
            self.log_end_offset = Offset(last_offset + 1)
            if producer_id >= 0:
                if attributes & CONTROL_BIT:
                    self._replay_marker(segment, data[position : position + size])
                else:
                    self.producers.appended(
                        producer_id,
                        producer_epoch,
                        base_sequence,
                        base_offset,
                        last_delta,
                        max_timestamp,
                        attributes & TRANSACTIONAL_BIT != 0,
                    )
            position += size

    def _write_one_by_one(self, data: memoryview, headers: list[_Replicated], now_ms: int) -> None:
        position = 0
        for header in headers:
            base_offset, length, _, _, _, _, last_delta, max_timestamp, _, _, _ = header
            end = position + LENGTH_OVERHEAD + length
            self._write_replicated(data[position:end], [header], base_offset + last_delta, max_timestamp, now_ms)
            position = end

    def _replay_marker(self, segment: Segment, batch: memoryview) -> None:
        completed = self.producers.replay(read_header(batch), lambda: batch)
        if completed is not None:
            if completed.aborted:
                segment.txn_index.append(self.producers.aborted_entry(completed))
            self.producers.complete(completed)


def _does_not_follow(batches: memoryview, end_offset: int) -> KafkaError:
    """What is wrong with the first of the leader's batches, which is whole."""
    base_offset, length, _, magic, _, _, _, _, _, _, _ = _unpack_replicated(batches)
    if length < HEADER_SIZE - LENGTH_OVERHEAD:
        what = f"has a length of {length}, which is smaller than a header"
    elif magic == MAGIC and crc_matches(batches[: LENGTH_OVERHEAD + length]):
        what = f"does not follow on {end_offset}"
    else:
        what = "is damaged"
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the leader's batch at {base_offset} {what}")
