"""What compaction wants to know of a batch's records, in columns: it looks at millions, and makes an object of none."""

from __future__ import annotations

from collections.abc import Iterator

from odradek.protocol.records import native
from odradek.protocol.records.batch import HEADER_SIZE, BatchHeader
from odradek.protocol.records.compression import decompressed_pieces
from odradek.protocol.records.pure import Columns
from odradek.protocol.records.record import malformed, read_varint

_MOST_RECORDS = 100_000
"""At once: some 4 MB of columns."""
_LENGTH_BYTES = 5
"""Of a record's length, which stands in front of it, at most."""
_MAX_INT64 = (1 << 63) - 1


def read_columns(batch: bytes | memoryview, header: BatchHeader) -> Iterator[tuple[bytes, Columns]]:
    """All records of a batch, some at a time: bytes in which they stand one behind the other, and their columns.

    Between the offsets of a cleaned batch there are gaps. What is compressed is unpacked a piece at a time. Raises
    INVALID_RECORD where the records are not as many as the header declares, or not whole, or not within the batch's
    offsets: of those before, columns may have come already.
    """
    left = header.records_count
    above = header.base_offset - 1
    pieces: list[bytes] = []
    unread = wanted = 0
    for piece in decompressed_pieces(header.compression, memoryview(batch)[HEADER_SIZE:], _MAX_INT64):
        pieces.append(piece)
        unread += len(piece)
        if unread < wanted:
            continue  # A record is larger than a piece, and joining them at each piece would take ever longer.
        body = b"".join(pieces)
        position = 0
        while left:
            most = min(left, _MOST_RECORDS)
            columns = native.offsets_keys_hashes(
                body, position, most, header.base_offset, header.base_timestamp, above, header.last_offset
            )
            if not columns[0]:
                break
            left -= len(columns[0])
            above = columns[0][-1]
            position = columns[2][-1]
            yield body, columns
        pieces = [body[position:]]
        unread = len(pieces[0])
        wanted = _size_of_record(pieces[0]) if left else 0
        if wanted <= unread and unread:
            break
    if left or unread:
        raise malformed(
            f"a batch of {header.records_count} records cannot be read: record {header.records_count - left}"
        )


def _size_of_record(start: bytes) -> int:
    """How many bytes one that starts with these takes; more than these are, if they do not tell."""
    if not any(byte < 0x80 for byte in start[:_LENGTH_BYTES]):
        return len(start) + 1 if len(start) < _LENGTH_BYTES else 0
    length, behind = read_varint(start, 0)
    return behind + length
