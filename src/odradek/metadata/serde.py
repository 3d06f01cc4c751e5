"""Metadata records as bytes: the frame that Kafka puts around each one in `__cluster_metadata` and in snapshots."""

from __future__ import annotations

from odradek.metadata.features import record_version
from odradek.metadata.records import record_class
from odradek.protocol.codec import Message, decode, encode
from odradek.protocol.errors import MalformedFrame

_FRAME_VERSION = 1
_HEADER_BYTES = 3


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
