"""Which batches a leader accepts, and what it changes in them first.

A client's batch is looked into record by record, as Apache Kafka does it and with its answers (ADR 23 and 22). All of
it follows from the bytes, the topic's settings and the time.
"""

from __future__ import annotations

from enum import IntEnum

from odradek.ids import NO_TIMESTAMP
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.batch import (
    BATCH_HEADER,
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    crc_matches,
    update_crc,
)
from odradek.protocol.records.check import FIXED_TIMESTAMP, NEEDS_KEY, REFUSES_TIMESTAMP, TakesLong, check_records
from odradek.protocol.records.compression import MAX_DECOMPRESSED_BYTES, Compression, compress, decompress
from odradek.storage.config import LONG_MAX, LogConfig
from odradek.values import value

LOG_APPEND_TIME = "LogAppendTime"

SMALLEST_RECORD = 7
"""Bytes of a record with nothing in it: its length, attributes, two deltas, and three lengths."""

DECOMPRESSED_PER_PACKED_BYTE = 32
"""A batch may become so many times `max.message.bytes`, and `MAX_DECOMPRESSED_BYTES` at least."""

AT_ONCE_BYTES = 1024 * 1024
"""So many bytes of records, unpacked, may be looked at while others wait: milliseconds in Python."""

PACKED_AT_ONCE_BYTES = 64 * 1024
"""So many bytes may be packed while others wait, which takes ten times as long; none that must be unpacked before."""

_EARLIEST_MS = -LONG_MAX - 1
_LATEST_MS = LONG_MAX - (1 << 43)
"""How far ahead timestamps may lie at most: less than int64 has, so that a sum with the time is one, too."""

_MAX_INT32 = (1 << 31) - 1
_SMALLEST_LENGTH = 14
"""Of anything that Kafka takes for a batch, in any format."""
_UP_TO_MAGIC = 17

_CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


class Origin(IntEnum):
    """Who made a batch, which decides how much of it is taken on trust."""

    CLIENT = 0
    COORDINATOR = 1
    RAFT_LEADER = 2


def refuse_short(batch: memoryview) -> KafkaError:
    """The error for bytes that are fewer than a header.

    Kafka sees no batch at all where the declared length is not there, and a corrupt one where it is too small.
    """
    declared = int.from_bytes(batch[8:12], signed=True) if len(batch) >= LENGTH_OVERHEAD else HEADER_SIZE
    code = ErrorCode.INVALID_RECORD if declared + LENGTH_OVERHEAD > len(batch) else ErrorCode.CORRUPT_MESSAGE
    return KafkaError(code, f"{len(batch)} bytes are too few for a record batch")


def only_batch(data: memoryview) -> memoryview:
    """The one batch that these bytes, at least a header of them, begin with; without what follows if that is none.

    As Kafka, which reads batches until no whole one is left, and then forgets the rest.
    """
    size = _size_of_next(data)
    if size is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{len(data)} bytes are not a whole record batch")
    if data[_UP_TO_MAGIC - 1] != MAGIC:
        _refuse_magic(data[_UP_TO_MAGIC - 1])
    if _size_of_next(data[size:]) is not None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "more than one record batch for a partition")
    if size < HEADER_SIZE:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch of {size} bytes is smaller than its header")
    return data[:size]


def _size_of_next(data: memoryview) -> int | None:
    """Of the batch at the start of these bytes; None if it is not there to its end."""
    if len(data) < LENGTH_OVERHEAD:
        return None
    length = int.from_bytes(data[8:12], signed=True)
    if length < _SMALLEST_LENGTH:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch length of {length} is smaller than any batch's")
    if len(data) < _UP_TO_MAGIC:
        return None
    if data[_UP_TO_MAGIC - 1] > MAGIC:
        _refuse_magic(data[_UP_TO_MAGIC - 1])
    if length > _MAX_INT32 - LENGTH_OVERHEAD:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a batch length of {length} is larger than any batch's")
    return length + LENGTH_OVERHEAD if length + LENGTH_OVERHEAD <= len(data) else None


def check_header(batch: memoryview, config: LogConfig, origin: Origin) -> None:
    """Raise what Kafka answers to a batch whose header is not as it must be; the CRC is checked elsewhere."""
    header = BatchHeader(*BATCH_HEADER.unpack_from(batch))
    if header.magic != MAGIC:
        _refuse_magic(header.magic)
    if len(batch) > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {len(batch)} bytes exceeds max.message.bytes, which is {config.max_message_bytes}",
        )
    if header.attributes & COMPRESSION_MASK > Compression.ZSTD:
        # Not foreseen by Kafka, and so no more than this is said.
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"unknown compression type {header.attributes & COMPRESSION_MASK}"
        )
    if header.records_count <= 0 or header.last_offset_delta != header.records_count - 1:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"a batch declares {header.records_count} records and a last offset delta of {header.last_offset_delta}",
        )
    # An offset for every record that is declared: a count beyond what the bytes can hold would waste billions of them.
    content = most_decompressed(config) if header.attributes & COMPRESSION_MASK else len(batch)
    if header.records_count * SMALLEST_RECORD > content:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"a batch of {len(batch)} bytes cannot hold {header.records_count} records"
        )
    if origin is Origin.CLIENT:
        _check_client_header(header)


def _check_client_header(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"a batch's base offset is {header.base_offset}; a producer must send 0"
        )
    if header.attributes & CONTROL_BIT:
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"a batch of producer {header.producer_id} has sequence number {header.base_sequence}",
        )


def _refuse_magic(magic: int) -> None:
    """Formats 0 and 1 went with Kafka 4.0 for producers; anything above 2 was never one."""
    if magic in (0, 1):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"message format {magic} is not accepted, only format {MAGIC}")
    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"unknown message format {magic}")


def most_decompressed(config: LogConfig) -> int:
    """How many bytes a batch may become where it is unpacked; Kafka sets no bound."""
    return max(MAX_DECOMPRESSED_BYTES, config.max_message_bytes * DECOMPRESSED_PER_PACKED_BYTE)


def most_ahead_ms(config: LogConfig) -> int:
    """How far a timestamp may lie in the future, so that a sum with the time still is an int64."""
    return min(config.message_timestamp_after_max_ms, _LATEST_MS)


def looks_inside(config: LogConfig) -> bool:
    """Whether records of clients are looked at: unless nobody wants it, and no setting depends on them."""
    return config.validate_records or config.compacted or config.message_timestamp_before_max_ms != LONG_MAX


def is_verbatim(config: LogConfig, origin: Origin) -> bool:
    """Whether batches, once looked into, can be taken as they are: no setting asks to change bytes.

    Nobody looks at the records of a coordinator, which knows what it writes.
    """
    if config.message_timestamp_type == LOG_APPEND_TIME or config.compression_type != "producer":
        return False
    return origin is not Origin.CLIENT or not config.compacted


@value
class Examined:
    """What came of looking into a client's batch elsewhere, before its append: see `examine`."""

    config: LogConfig
    """With other settings it would have to be looked into again."""
    batch: memoryview
    error: KafkaError | None


def examine(batch: memoryview, config: LogConfig, now_ms: int) -> Examined | None:
    """All of `prepare` that takes long, for a worker.

    The batch must be the caller's own, since it may be changed in place. None if already its header is wrong, which the
    append will say.
    """
    if len(batch) < HEADER_SIZE:
        return None
    try:
        batch = only_batch(batch)
        check_header(batch, config, Origin.CLIENT)
        if not crc_matches(batch):
            return None
    except KafkaError:
        return None
    try:
        return Examined(config, prepare(batch, config, Origin.CLIENT, now_ms, None), None)
    except KafkaError as error:
        return Examined(config, batch, error)


def prepare(
    batch: memoryview, config: LogConfig, origin: Origin, now_ms: int, at_once: int | None = AT_ONCE_BYTES
) -> memoryview:
    """Check and change a batch as the topic's settings demand; the view itself, or one of a new batch.

    The header is sound and the CRC has been compared before. What takes long raises `TakesLong` before anything is
    changed, unless `at_once` is None.
    """
    header = BatchHeader(*BATCH_HEADER.unpack_from(batch))
    codec = _CODECS.get(config.compression_type)
    if codec == header.attributes & COMPRESSION_MASK or header.is_control:
        codec = None
    is_long = len(batch) > PACKED_AT_ONCE_BYTES or header.attributes & COMPRESSION_MASK
    if codec is not None and is_long and at_once is not None and origin is Origin.CLIENT:
        raise TakesLong
    append_time = config.message_timestamp_type == LOG_APPEND_TIME
    max_timestamp = header.max_timestamp
    if origin is Origin.CLIENT and looks_inside(config):
        max_timestamp = _check_records(batch, header, config, now_ms, at_once)
    elif header.attributes & TIMESTAMP_TYPE_BIT and (append_time or max_timestamp == NO_TIMESTAMP):
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "a producer may not say that its timestamps are append times")
    elif not append_time:
        check_timestamp(max_timestamp, config, now_ms)
    if codec is not None:
        batch = _recompressed(batch, header, codec, config)
    if append_time:
        set_timestamp(batch, header.attributes | TIMESTAMP_TYPE_BIT, now_ms)
    elif header.attributes & TIMESTAMP_TYPE_BIT or max_timestamp != header.max_timestamp:
        set_timestamp(batch, header.attributes & ~TIMESTAMP_TYPE_BIT, max_timestamp)
    return batch


def _check_records(batch: memoryview, header: BatchHeader, config: LogConfig, now_ms: int, at_once: int | None) -> int:
    """The largest timestamp of a client's records, or the refusal of them."""
    append_time = config.message_timestamp_type == LOG_APPEND_TIME
    flags = NEEDS_KEY if config.compacted else 0
    base_timestamp = header.base_timestamp
    if header.attributes & TIMESTAMP_TYPE_BIT:
        base_timestamp = header.max_timestamp
        refused = append_time or base_timestamp == NO_TIMESTAMP
        flags |= REFUSES_TIMESTAMP if refused else FIXED_TIMESTAMP
    return check_records(
        batch[HEADER_SIZE:],
        header.attributes & COMPRESSION_MASK,
        base_timestamp=base_timestamp,
        count=header.records_count,
        flags=flags,
        lowest=_EARLIEST_MS if append_time else now_ms - config.message_timestamp_before_max_ms,
        highest=LONG_MAX if append_time else now_ms + most_ahead_ms(config),
        limit=most_decompressed(config),
        at_once=at_once,
    )


def check_timestamp(max_timestamp: int, config: LogConfig, now_ms: int) -> None:
    """Raise INVALID_TIMESTAMP if the batch's largest timestamp lies too far in the future."""
    if max_timestamp != NO_TIMESTAMP and max_timestamp - now_ms > config.message_timestamp_after_max_ms:
        raise _out_of_range(max_timestamp, config, now_ms)


def set_timestamp(batch: memoryview, attributes: int, max_timestamp: int) -> None:
    """Write both into the header; the codec stays what it is there."""
    fields = list(BATCH_HEADER.unpack_from(batch))
    fields[5] = (attributes & ~COMPRESSION_MASK) | (fields[5] & COMPRESSION_MASK)
    fields[8] = max_timestamp
    BATCH_HEADER.pack_into(batch, 0, *fields)
    update_crc(batch)


def _recompressed(batch: memoryview, header: BatchHeader, codec: Compression, config: LogConfig) -> memoryview:
    """The same records under another codec: the payload is unpacked and packed again, never parsed."""
    levels = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }
    payload = compress(
        codec, decompress(header.compression, batch[HEADER_SIZE:], most_decompressed(config)), levels.get(codec)
    )
    changed = bytearray(batch[:HEADER_SIZE]) + payload
    fields = list(BATCH_HEADER.unpack_from(changed))
    fields[1] = len(changed) - LENGTH_OVERHEAD
    fields[5] = (header.attributes & ~COMPRESSION_MASK) | codec
    BATCH_HEADER.pack_into(changed, 0, *fields)
    update_crc(changed)
    if len(changed) > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {len(changed)} bytes after recompression exceeds max.message.bytes, "
            f"which is {config.max_message_bytes}",
        )
    return memoryview(changed)


def _out_of_range(timestamp: int, config: LogConfig, now_ms: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_TIMESTAMP,
        f"the timestamp {timestamp} is out of range: from {now_ms - config.message_timestamp_before_max_ms} "
        f"to {now_ms + config.message_timestamp_after_max_ms} is accepted",
    )
