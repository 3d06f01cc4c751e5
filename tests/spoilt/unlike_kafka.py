"""Where Odradek answers otherwise than Apache Kafka, and knows it (ADR 22): it refuses more, and never less."""

from __future__ import annotations

from fnmatch import fnmatch

from tests.spoilt.batches import Case
from tests.spoilt.record import Answer

INVALID_RECORD, UNKNOWN_SERVER_ERROR, UNSUPPORTED_COMPRESSION_TYPE = 87, -1, 76

UNLIKE_KAFKA = {
    # Some clients take any negative length for none, others stop there.
    "* *-length-minus-two": INVALID_RECORD,
    "* *-length-very-negative": INVALID_RECORD,
    "* header-content-minus-two": INVALID_RECORD,
    # And some keep the bits that others drop.
    "* timestamp-of-66-bits": INVALID_RECORD,
    "* length-of-five-bytes-and-33-bits": INVALID_RECORD,
    # Kafka counts the records and gives offsets that the records contradict, or fails to write such a batch anew.
    "* offset-delta-*": INVALID_RECORD,
    "* offset-gap": INVALID_RECORD,
    # Where it unpacks, Kafka believes no length of a record, and looks at none; every client does.
    "* record-*": INVALID_RECORD,
    "* middle-record-*": INVALID_RECORD,
    "* keyless-and-broken": INVALID_RECORD,
    # Not every client knows that one stream may follow another, or another version of snappy's framing.
    "stream *-in-two-streams": INVALID_RECORD,
    "stream snappy-version-9": INVALID_RECORD,
    # What the Java reader never comes to, and others do.
    "stream gzip-*-behind": INVALID_RECORD,
    "stream snappy-zero-behind": INVALID_RECORD,
    "stream lz4-*-behind": INVALID_RECORD,
    "stream lz4-wrong-content-checksum": UNKNOWN_SERVER_ERROR,
}


def expected(case: Case, of_kafka: Answer) -> Answer:
    """What Odradek answers."""
    codes = (code for pattern, code in UNLIKE_KAFKA.items() if fnmatch(case.name, pattern))
    code = next(codes, None)
    return of_kafka if code is None or of_kafka.code == UNSUPPORTED_COMPRESSION_TYPE else Answer(code)
