"""Whether a producer's batch holds the records that it declares, and what to answer if not.

The codes are those of Apache Kafka 4.3.1, met one by one (`tests/spoilt`). Where Kafka takes what some client cannot
read, INVALID_RECORD is answered (ADR 22).
"""

from __future__ import annotations

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records import native
from odradek.protocol.records.batch import HEADER_SIZE, BatchHeader
from odradek.protocol.records.compression import Compression, Garbage, decompressed_pieces
from odradek.protocol.records.pure import FIXED_TIMESTAMP, NEEDS_KEY, REFUSES_TIMESTAMP, Fault, Refused

__all__ = [
    "FIXED_TIMESTAMP",
    "NEEDS_KEY",
    "REFUSES_TIMESTAMP",
    "TakesLong",
    "check_records",
    "refusal",
    "verify_records",
]

_MIN_INT64, _MAX_INT64 = -(1 << 63), (1 << 63) - 1

_WHAT = {
    Fault.ENDS_EARLY: "the records end before it does",
    Fault.LEFT_OVER: "something follows where the batch declares no more records",
    Fault.LENGTH_NUMBER: "its length is no number",
    Fault.NUMBER: "a number in it is too long",
    Fault.LENGTH: "its fields do not fill it exactly",
    Fault.FIELD: "a key, value or header in it is longer than what is left of it",
    Fault.HEADERS: "its headers are too many, less than none, or without a name",
    Fault.OFFSET: "its offset delta is not its place in the batch",
}


PACKED_LESS = 4
"""So many times fewer bytes of compressed records as of plain ones are looked at in one go."""
GZIP_LESS = 2
"""So many times fewer bytes come out of gzip in one go as out of the others, which are quicker."""


class TakesLong(Exception):
    """There is more to look at than can be done while others wait; nothing is wrong so far."""


def check_records(
    payload: memoryview,
    codec: int,
    *,
    base_timestamp: int,
    count: int,
    flags: int,
    lowest: int,
    highest: int,
    limit: int,
    at_once: int | None = None,
) -> int:
    """The largest timestamp of the records behind a batch's header; `KafkaError` if anything is wrong with them.

    Timestamps must lie from `lowest` to `highest`; what is compressed may become `limit` bytes, a piece at a time. More
    than `at_once` bytes raise `TakesLong`.
    """
    if at_once is not None and len(payload) > (at_once // PACKED_LESS if codec else at_once):
        raise TakesLong
    if not codec:
        found = native.check(payload, base_timestamp, count, flags, lowest, highest)
    else:
        looking = native.Check(base_timestamp, count, flags, lowest, highest)
        left = limit if at_once is None else at_once // (GZIP_LESS if codec == Compression.GZIP else 1)
        try:
            for piece in decompressed_pieces(Compression(codec), payload, limit, as_clients=True):
                left -= len(piece)
                if left < 0:
                    raise TakesLong
                if not looking.feed(piece):
                    break
        except Garbage as garbage:
            # As a client is told by Kafka, where it is an exception that nobody has expected.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, garbage.message) from None
        found = looking.finish()
    if isinstance(found, int):
        return found
    raise refusal(found, codec, flags, lowest, highest)


def verify_records(batch: memoryview, header: BatchHeader) -> None:
    """Raise KafkaError unless the batch, from which compaction has taken nothing, holds the records it declares."""
    looking = native.Check(header.base_timestamp, header.records_count, 0, _MIN_INT64, _MAX_INT64)
    codec = header.compression
    if codec is Compression.NONE:
        looking.feed(batch[HEADER_SIZE:])
    else:
        for piece in decompressed_pieces(codec, batch[HEADER_SIZE:], _MAX_INT64):
            if not looking.feed(piece):
                break
    found = looking.finish()
    if not isinstance(found, int):
        raise refusal(found, codec, 0, _MIN_INT64, _MAX_INT64)


def refusal(found: Refused, codec: int, flags: int, lowest: int, highest: int) -> KafkaError:
    """What to answer where a check has found something."""
    fault, index, errors = found
    if fault:
        # A length that is no number is not foreseen by Kafka, either, outside of compressed records.
        unforeseen = fault == Fault.LENGTH_NUMBER and not codec
        code = ErrorCode.UNKNOWN_SERVER_ERROR if unforeseen else ErrorCode.INVALID_RECORD
        return KafkaError(code, f"record {index} of the batch cannot be read: {_WHAT[Fault(fault)]}")
    told = tuple((number, _what(wrong, flags, lowest, highest)) for number, wrong in errors)
    badly_timed = any(wrong is not None for _, wrong in errors)
    error = KafkaError(
        ErrorCode.INVALID_TIMESTAMP if badly_timed else ErrorCode.INVALID_RECORD,
        f"{len(errors)} of the batch's records cannot be here; the first is record {told[0][0]}: {told[0][1]}",
    )
    error.record_errors = told
    return error


def _what(timestamp: int | None, flags: int, lowest: int, highest: int) -> str:
    if timestamp is None:
        return "a compacted topic cannot take a record without a key"
    if flags & REFUSES_TIMESTAMP:
        return "a producer may not say that its timestamps are append times"
    return f"the timestamp {timestamp} is out of range: from {lowest} to {highest} is accepted"
