"""Which batches a leader accepts, and what it changes in them first.

Per batch, not per record: records are looked at only where a setting needs it (compacted topics, a bound on old
timestamps). ADR 7 tells what that leaves to readers.
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
    decode_records,
    update_crc,
)
from odradek.protocol.records.compression import MAX_DECOMPRESSED_BYTES, Compression, compress, decompress
from odradek.storage.config import LONG_MAX, LogConfig

LOG_APPEND_TIME = "LogAppendTime"

SMALLEST_RECORD = 7
"""Bytes of a record with nothing in it: its length, attributes, two deltas, and three lengths."""

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


def check_header(batch: memoryview, config: LogConfig, origin: Origin) -> None:
    """Raise what Kafka answers to a batch whose header is not as it must be; the CRC is checked elsewhere."""
    header = BatchHeader(*BATCH_HEADER.unpack_from(batch))
    if header.magic != MAGIC:
        _refuse_magic(header.magic)
    if header.size != len(batch):
        code = ErrorCode.CORRUPT_MESSAGE if header.size < HEADER_SIZE else ErrorCode.INVALID_RECORD
        raise KafkaError(
            code, f"a batch declares {header.size} bytes where {len(batch)} were received: not exactly one"
        )
    if len(batch) > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {len(batch)} bytes exceeds max.message.bytes, which is {config.max_message_bytes}",
        )
    if header.attributes & COMPRESSION_MASK > Compression.ZSTD:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"unknown compression type {header.attributes & COMPRESSION_MASK}")
    if header.records_count <= 0 or header.last_offset_delta != header.records_count - 1:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"a batch declares {header.records_count} records and a last offset delta of {header.last_offset_delta}",
        )
    # An offset for every record that is declared: a count beyond what the bytes can hold would waste billions of them.
    content = MAX_DECOMPRESSED_BYTES if header.attributes & COMPRESSION_MASK else len(batch)
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


def is_verbatim(config: LogConfig, origin: Origin) -> bool:
    """Whether batches can be taken as they are: no setting asks to look at records or to change bytes.

    Nobody looks at the records of a coordinator, which knows what it writes.
    """
    if config.message_timestamp_type == LOG_APPEND_TIME or config.compression_type != "producer":
        return False
    return origin is not Origin.CLIENT or not (config.compacted or _limits_old_timestamps(config))


def prepare(batch: memoryview, config: LogConfig, origin: Origin, now_ms: int) -> memoryview:
    """Check and change a batch as the topic's settings demand; the view itself, or one of a new batch.

    The header is sound and the CRC has been compared before.
    """
    header = BatchHeader(*BATCH_HEADER.unpack_from(batch))
    append_time = config.message_timestamp_type == LOG_APPEND_TIME
    if header.attributes & TIMESTAMP_TYPE_BIT and (append_time or header.max_timestamp == NO_TIMESTAMP):
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "a producer may not say that its timestamps are append times")
    if not append_time:
        check_timestamp(header.max_timestamp, config, now_ms)
    if origin is Origin.CLIENT and (config.compacted or (not append_time and _limits_old_timestamps(config))):
        _check_records(batch, config, now_ms, check_age=not append_time)
    codec = _CODECS.get(config.compression_type)
    if codec is not None and codec != header.attributes & COMPRESSION_MASK and not header.is_control:
        batch = _recompressed(batch, header, codec, config)
    if append_time:
        _set_timestamp(batch, header.attributes | TIMESTAMP_TYPE_BIT, now_ms)
    elif header.attributes & TIMESTAMP_TYPE_BIT:
        _set_timestamp(batch, header.attributes & ~TIMESTAMP_TYPE_BIT, header.max_timestamp)
    return batch


def check_timestamp(max_timestamp: int, config: LogConfig, now_ms: int) -> None:
    """Raise INVALID_TIMESTAMP if the batch's largest timestamp lies too far in the future."""
    if max_timestamp != NO_TIMESTAMP and max_timestamp - now_ms > config.message_timestamp_after_max_ms:
        raise _out_of_range(max_timestamp, config, now_ms)


def _set_timestamp(batch: memoryview, attributes: int, max_timestamp: int) -> None:
    fields = list(BATCH_HEADER.unpack_from(batch))
    fields[5] = (attributes & ~COMPRESSION_MASK) | (fields[5] & COMPRESSION_MASK)
    fields[8] = max_timestamp
    BATCH_HEADER.pack_into(batch, 0, *fields)
    update_crc(batch)


def _limits_old_timestamps(config: LogConfig) -> bool:
    return config.message_timestamp_before_max_ms != LONG_MAX


def _check_records(batch: memoryview, config: LogConfig, now_ms: int, *, check_age: bool) -> None:
    for record in decode_records(batch):
        if config.compacted and record.key is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "a compacted topic cannot take a record without a key")
        if (
            check_age
            and record.timestamp != NO_TIMESTAMP
            and now_ms - record.timestamp > config.message_timestamp_before_max_ms
        ):
            raise _out_of_range(record.timestamp, config, now_ms)


def _recompressed(batch: memoryview, header: BatchHeader, codec: Compression, config: LogConfig) -> memoryview:
    """The same records under another codec: the payload is unpacked and packed again, never parsed."""
    levels = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }
    payload = compress(codec, decompress(header.compression, batch[HEADER_SIZE:]), levels.get(codec))
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
