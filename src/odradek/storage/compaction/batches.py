"""One batch of a log that is cleaned, and what is left of it.

Records that stay are copied as bytes. A batch that stays keeps its offsets, its producer and its sequence, however many
records it has lost, so its header goes on saying what a producer, a follower and a truncation have to know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from struct import Struct

from odradek.ids import NO_TIMESTAMP
from odradek.protocol.records.batch import (
    BATCH_HEADER,
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    update_crc,
)
from odradek.protocol.records.columns import read_columns
from odradek.protocol.records.compression import compress as pack
from odradek.protocol.records.pure import HAS_KEY, HAS_VALUE, HASH_BYTES, Columns
from odradek.protocol.records.record import read_varint, write_varint

_each_hash = Struct(f"{HASH_BYTES}s").iter_unpack


def hashes_of(columns: Columns) -> list[bytes]:
    """Of the keys; of a record without one what has no meaning."""
    return [key for (key,) in _each_hash(columns[4])]


def last_offsets(header: BatchHeader, batch: bytes | memoryview) -> dict[bytes, int]:
    """The last offset of each key in a batch, by its hash; `KafkaError` if the records cannot be read."""
    last: dict[bytes, int] = {}
    for _, columns in read_columns(batch, header):
        offsets, _, _, flags, _ = columns
        found = zip(hashes_of(columns), offsets, strict=True)
        last.update(found if all_have_keys(flags) else compress(found, map(HAS_KEY.__and__, flags)))
    return last


def all_have_keys(flags: bytes) -> bool:
    return flags.count(HAS_KEY | HAS_VALUE) + flags.count(HAS_KEY) == len(flags)


def delete_horizon(header: BatchHeader) -> int | None:
    """From when on its tombstones, or its marker, may go (KIP-534); None before a cleaning has noted that."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None


def empty_batch(header: BatchHeader) -> bytearray:
    """What is left of a batch without records: its place, its producer and its sequence."""
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT)
    return _batch(header, b"", attributes, base_timestamp=NO_TIMESTAMP, max_timestamp=header.max_timestamp, count=0)


class Survivors:
    """The records of one batch that stay."""

    __slots__ = ("_header", "_pieces", "count", "has_tombstones")

    def __init__(self, header: BatchHeader) -> None:
        self._header = header
        self._pieces: list[tuple[bytes, Columns, Sequence[int]]] = []
        self.count = 0
        self.has_tombstones = False

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the batch."""
        return self.count == self._header.records_count

    def add(self, body: bytes, columns: Columns, numbers: Sequence[int]) -> None:
        """Those with these numbers, of what `read_columns` has brought."""
        flags = columns[3]
        self._pieces.append((body, columns, numbers))
        self.count += len(numbers)
        if flags.count(HAS_KEY | HAS_VALUE) != len(flags):
            self.has_tombstones = self.has_tombstones or not all(flags[number] & HAS_VALUE for number in numbers)

    def as_batch(self, *, horizon_ms: int | None) -> bytearray:
        """The batch of these alone, at least one; with the time from which tombstones may go, if that is to be noted.

        The time stands where the base of the timestamps does, which are then counted from there.
        """
        header = self._header
        attributes, base_timestamp = header.attributes, header.base_timestamp
        if horizon_ms is None:
            payload = b"".join(run for piece in self._pieces for run in _runs(*piece))
        else:
            attributes |= DELETE_HORIZON_BIT
            base_timestamp = horizon_ms
            payload = b"".join(self._timed_from(horizon_ms))
        codec = header.compression
        if codec:
            payload = pack(codec, payload)
        max_timestamp = header.max_timestamp
        if not attributes & TIMESTAMP_TYPE_BIT:
            max_timestamp = max(columns[1][number] for _, columns, numbers in self._pieces for number in numbers)
        return _batch(
            header,
            payload,
            attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            count=self.count,
        )

    def _timed_from(self, base_timestamp: int) -> Iterator[bytes]:
        """The bytes of each, its timestamp counted from another base."""
        is_append_time = self._header.attributes & TIMESTAMP_TYPE_BIT
        for body, (_, timestamps, positions, _, _), numbers in self._pieces:
            for number in numbers:
                timestamp = self._header.max_timestamp if is_append_time else timestamps[number]
                _, at = read_varint(body, positions[number])
                _, behind = read_varint(body, at + 1)
                record = bytearray(body[at : at + 1])  # The attributes.
                write_varint(record, timestamp - base_timestamp)
                record += body[behind : positions[number + 1]]
                size = bytearray()
                write_varint(size, len(record))
                yield bytes(size + record)


def _runs(body: bytes, columns: Columns, numbers: Sequence[int]) -> Iterator[bytes]:
    """The bytes of these records, of neighbours at once."""
    positions = columns[2]
    start = end = -1
    for number in numbers:
        if number != end:
            if end > start:
                yield body[positions[start] : positions[end]]
            start = number
        end = number + 1
    if end > start:
        yield body[positions[start] : positions[end]]


def _batch(
    header: BatchHeader, payload: bytes, attributes: int, *, base_timestamp: int, max_timestamp: int, count: int
) -> bytearray:
    batch = bytearray(HEADER_SIZE)
    BATCH_HEADER.pack_into(
        batch,
        0,
        header.base_offset,
        HEADER_SIZE - LENGTH_OVERHEAD + len(payload),
        header.leader_epoch,
        MAGIC,
        0,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    batch += payload
    update_crc(batch)
    return batch
