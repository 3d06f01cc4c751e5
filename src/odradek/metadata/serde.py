"""Metadata records as bytes: the frame that Kafka puts around each one in `__cluster_metadata` and in snapshots."""

from __future__ import annotations

from odradek.metadata.features import record_version
from odradek.metadata.records import record_class
from odradek.protocol.codec import Message, decode, encode
from odradek.protocol.errors import MalformedFrame
from odradek.protocol.records.batch import ATTRIBUTES_POSITION, COMPRESSION_MASK, HEADER_SIZE, decode_records
from odradek.protocol.records.record import read_varint

_FRAME_VERSION = 1
_HEADER_BYTES = 3
_ONE_RECORD = (1).to_bytes(4)
"""How a batch's header ends that counts one."""
_PLAIN = b"\0\0\0\1"
"""How a lone record begins: no attributes, the batch's own time and offset, no key."""


def encode_record(record: Message, metadata_version: int) -> bytes:
    """Frame version, kind, version (all unsigned varints, all below 128 so far), then the message."""
    version = record_version(record, metadata_version)
    return bytes((_FRAME_VERSION, type(record).api_key, version)) + encode(record, version)


def decode_record(frame: bytes | memoryview) -> Message:
    """Read what `encode_record` or Kafka wrote; MalformedFrame on anything else."""
    if len(frame) > _HEADER_BYTES and frame[0] == _FRAME_VERSION and frame[1] < 0x80 and frame[2] < 0x80:
        return decode(record_class(frame[1]), frame[2], frame[_HEADER_BYTES:])  # All there are so far.
    frame_version, position = _unsigned_varint(frame, 0)
    if frame_version != _FRAME_VERSION:
        raise MalformedFrame(f"a metadata record has frame version {frame_version} instead of {_FRAME_VERSION}")
    kind, position = _unsigned_varint(frame, position)
    version, position = _unsigned_varint(frame, position)
    return decode(record_class(kind), version, frame[position:])


def decode_batch(batch: memoryview) -> list[Message]:
    """The records of one batch, in order; INVALID_RECORD or MalformedFrame where it holds anything else."""
    if batch[HEADER_SIZE - 4 : HEADER_SIZE] == _ONE_RECORD and not batch[ATTRIBUTES_POSITION + 1] & COMPRESSION_MASK:
        # Most are like this, and their record is as plain as can be.
        data = bytes(batch[HEADER_SIZE:])
        length, position = read_varint(data, 0)
        if data[position : position + 4] == _PLAIN and position + length == len(data) and not data[-1]:
            size, position = read_varint(data, position + 4)
            if position + size == len(data) - 1:
                return [decode_record(data[position:-1])]
    return [decode_record(record.value or b"") for record in decode_records(batch)]


def _unsigned_varint(frame: bytes | memoryview, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if position >= len(frame):
            break
        byte = frame[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise MalformedFrame("a metadata record ends inside its frame")
