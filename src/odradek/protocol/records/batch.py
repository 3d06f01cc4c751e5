"""The record batch, message format 2: a header of 61 bytes and records, compressed or not.

The broker treats a batch as opaque bytes with a header; only what Kafka itself must look at inside is ever decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from odradek.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records import native
from odradek.protocol.records.compression import Compression, compress, compression_of, decompress
from odradek.protocol.records.crc import crc32c
from odradek.protocol.records.native import Fields
from odradek.protocol.records.record import Record, encode_record, malformed, read_fields
from odradek.values import value

BATCH_HEADER = struct.Struct(">qiiBIhiqqqhii")
"""base_offset, batch_length, partition_leader_epoch, magic, crc, attributes, last_offset_delta, base_timestamp,
max_timestamp, producer_id, producer_epoch, base_sequence, records_count"""

HEADER_SIZE = BATCH_HEADER.size
LENGTH_OVERHEAD = 12
"""`batch_length` counts the bytes behind itself; base offset and the length come before."""

CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
"""The CRC covers everything from here on, so base offset and leader epoch can be patched without touching it."""

MAGIC = 2

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
"""Set: the timestamps are the time of the append (LogAppendTime), all of them `max_timestamp`."""
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
"""Set by compaction: `base_timestamp` is the time from which on tombstones and markers of the batch may go."""

_FIRST_RECORDS = 16
"""Of a batch are decoded at once, since many a reader wants only one; and then more."""
_MORE_RECORDS = 500

_OFFSET_AND_LENGTH = struct.Struct(">qi")
_UINT32 = struct.Struct(">I")


@value
class BatchHeader:
    """A decoded header, for code that is not in a hurry."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def compression(self) -> Compression:
        return compression_of(self.attributes & COMPRESSION_MASK)


def read_header(data: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """The header at this position; CORRUPT_MESSAGE if fewer than its 61 bytes are left."""
    if len(data) - position < HEADER_SIZE:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{len(data) - position} bytes are too few for a batch header")
    return BatchHeader(*BATCH_HEADER.unpack_from(data, position))


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    timestamp: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    log_append_time: bool = False,
) -> bytearray:
    """One batch of these records; a record without a timestamp of its own gets `timestamp`.

    Offsets inside count from 0 in the order given, whatever offsets the records carry.
    """
    if not records:
        raise ValueError("a batch needs at least one record")
    times = [record.timestamp if record.timestamp != NO_TIMESTAMP else timestamp for record in records]
    body = bytearray()
    for delta, record in enumerate(records):
        body += encode_record(times[delta] - times[0], delta, record.key, record.value, record.headers)
    attributes = int(compression)
    attributes |= TIMESTAMP_TYPE_BIT if log_append_time else 0
    attributes |= TRANSACTIONAL_BIT if transactional else 0
    attributes |= CONTROL_BIT if control else 0
    return frame_batch(
        compress(compression, body, level) if compression is not Compression.NONE else body,
        attributes=attributes,
        records_count=len(records),
        base_timestamp=times[0],
        max_timestamp=max(times),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def frame_batch(
    payload: bytes | bytearray,
    *,
    attributes: int,
    records_count: int,
    base_timestamp: int,
    max_timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytearray:
    """The batch around records that are encoded, and compressed as the attributes say, already."""
    batch = bytearray(HEADER_SIZE)
    BATCH_HEADER.pack_into(
        batch,
        0,
        base_offset,
        HEADER_SIZE - LENGTH_OVERHEAD + len(payload),
        leader_epoch,
        MAGIC,
        0,
        attributes,
        records_count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    )
    batch += payload
    update_crc(batch)
    return batch


def update_crc(batch: bytearray | memoryview) -> None:
    """Make the checksum right again after a change behind it."""
    _UINT32.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))


def crc_matches(batch: bytes | bytearray | memoryview) -> bool:
    """Whether exactly one batch's bytes carry the checksum of their content."""
    (stored,) = _UINT32.unpack_from(batch, CRC_POSITION)
    return bool(crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]) == stored)


def iter_batches(data: bytes | bytearray | memoryview) -> Iterator[memoryview]:
    """Each whole batch as a view; a partial one at the end, which a Fetch may legally bring, is left out.

    A length that cannot be a batch's raises CORRUPT_MESSAGE: nothing behind it can be trusted.
    """
    view = memoryview(data)
    position = 0
    while position + LENGTH_OVERHEAD <= len(view):
        _, length = _OFFSET_AND_LENGTH.unpack_from(view, position)
        if length < HEADER_SIZE - LENGTH_OVERHEAD:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch length of {length} is smaller than a header")
        end = position + LENGTH_OVERHEAD + length
        if end > len(view):
            return
        yield view[position:end]
        position = end


def decode_records(batch: bytes | bytearray | memoryview) -> Iterator[Record]:
    """The records of one batch, in order, with absolute offsets and timestamps.

    The declared count must be what is there: fewer or more raise INVALID_RECORD. A leader has checked that before the
    batch was written (ADR 23), unless `odradek.validate.records` or an older release did not.
    """
    for some in decode_fields(batch):
        for key, content, headers, timestamp, offset in some:
            yield Record(key, content, headers, timestamp, offset)


def decode_fields(batch: bytes | bytearray | memoryview) -> Iterator[list[Fields]]:
    """The same in lists of some records each, for whoever makes something else of what a record consists of."""
    view = memoryview(batch)
    header = read_header(view)
    if header.attributes & COMPRESSION_MASK:
        payload = decompress(header.compression, view[HEADER_SIZE:])
    else:
        payload = bytes(view[HEADER_SIZE:])
    found = decode_payload(payload, header.records_count, header.base_offset, header.base_timestamp)
    if not header.attributes & TIMESTAMP_TYPE_BIT:
        yield from found
        return
    for some in found:  # With the time of the append, which is what this batch's timestamps are.
        yield [(key, content, headers, header.max_timestamp, offset) for key, content, headers, _, offset in some]


def decode_payload(payload: bytes, count: int, base_offset: int = 0, base_timestamp: int = 0) -> Iterator[list[Fields]]:
    """The same, where the header has been read and its payload unpacked; timestamps are those of the records."""
    index = position = 0
    most = _FIRST_RECORDS
    read_natively = native.decode
    while index < count:
        wanted = min(most, count - index)
        some: list[Fields] = []
        if read_natively is not None:
            some, position = read_natively(payload, position, wanted, base_offset, base_timestamp)
            if not some:
                read_natively = None  # It is unusual, and those behind it are not many: not worth a way of their own.
                continue
        else:
            try:
                while len(some) < wanted:
                    if position >= len(payload):
                        raise malformed(f"a batch declares {count} records and holds {index + len(some)}")
                    fields, position = read_fields(payload, position, base_offset, base_timestamp)
                    some.append(fields)
            except KafkaError:
                if some:
                    yield some
                raise
        index += len(some)
        most = _MORE_RECORDS
        yield some
    if position != len(payload):
        raise malformed(f"{len(payload) - position} bytes behind the {count} declared records")
