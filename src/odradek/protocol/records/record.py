"""One record inside a batch, and the variable-length integers it is made of."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.ids import NO_OFFSET, NO_TIMESTAMP
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records import native
from odradek.protocol.records.native import Fields
from odradek.protocol.records.native import Header as Header
from odradek.values import value


@value
class Record:
    """A key, a value and headers, at an offset and a time.

    To build a batch, offset and timestamp may be left out: the batch then gives them.
    """

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp: int = NO_TIMESTAMP
    offset: int = NO_OFFSET


def malformed(what: str) -> KafkaError:
    """What a reader of records says about bytes that are none."""
    return KafkaError(ErrorCode.INVALID_RECORD, what)


def write_varint(out: bytearray, number: int) -> None:
    """Zigzag, seven bits a byte, the lowest first: both varint and varlong, since the range is the caller's."""
    zigzag = (number << 1) ^ (number >> 63)
    while zigzag > 0x7F:
        out.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    out.append(zigzag)


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """The number and the position behind it; at most ten bytes, as a 64-bit number needs."""
    zigzag = shift = 0
    try:
        while True:
            byte = data[position]
            position += 1
            zigzag |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (zigzag >> 1) ^ -(zigzag & 1), position
            shift += 7
            if shift > 63:
                raise malformed("a variable-length integer is longer than ten bytes")
    except IndexError:
        raise malformed("a record ends in the middle of a variable-length integer") from None


def encode_in_python(
    timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Sequence[Header]
) -> bytes:
    """One record, with its length in front."""
    body = bytearray(1)  # Attributes, of which no bit is used yet.
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_nullable(body, key)
    _write_nullable(body, value)
    write_varint(body, len(headers))
    for name, content in headers:
        _write_nullable(body, name.encode())
        _write_nullable(body, content)
    size = bytearray()
    write_varint(size, len(body))
    return bytes(size + body)


encode_record = native.encode or encode_in_python


def read_record(
    data: bytes | memoryview, position: int, *, base_offset: int, base_timestamp: int
) -> tuple[Record, int]:
    """The record at this position and the position behind it; raises INVALID_RECORD on anything else."""
    fields, end = read_fields(data, position, base_offset, base_timestamp)
    return Record(*fields), end


def read_fields(data: bytes | memoryview, position: int, base_offset: int, base_timestamp: int) -> tuple[Fields, int]:
    """As `read_record`, what a record is made of."""
    length, position = read_varint(data, position)
    end = position + length
    if length < 0 or end > len(data):
        raise malformed(f"a record of {length} bytes in a batch with {len(data) - position} bytes left")
    timestamp_delta, at = read_varint(data, position + 1)
    offset_delta, at = read_varint(data, at)
    key, at = _read_nullable(data, at, end)
    content, at = _read_nullable(data, at, end)
    count, at = read_varint(data, at)
    if count < 0 or count > end - at:
        raise malformed(f"a record declares {count} headers in {end - at} bytes")
    headers: list[Header] = []
    for _ in range(count):
        name, at = _read_nullable(data, at, end)
        if name is None:
            raise malformed("a header without a name")
        header_value, at = _read_nullable(data, at, end)
        # As Java's consumers show it: Kafka takes any name, and one that is not UTF-8 must not end a reader.
        headers.append((name.decode(errors="replace"), header_value))
    if at != end:
        raise malformed(f"a record of {length} bytes holds {at - position} bytes of fields")
    return (key, content, tuple(headers), base_timestamp + timestamp_delta, base_offset + offset_delta), end


def _write_nullable(out: bytearray, content: bytes | None) -> None:
    if content is None:
        out.append(1)  # Zigzag of -1.
    else:
        write_varint(out, len(content))
        out += content


def _read_nullable(data: bytes | memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        if length == -1:
            return None, position
        raise malformed(f"a field of {length} bytes")
    if length > end - position:
        raise malformed(f"a field of {length} bytes in a record with {end - position} bytes left")
    return bytes(data[position : position + length]), position + length
