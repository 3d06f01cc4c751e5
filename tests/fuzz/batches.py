"""Record batches, sound and otherwise, for Produce requests."""

from __future__ import annotations

import random
import struct

from odradek.protocol.records.batch import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    build_batch,
    update_crc,
)
from odradek.protocol.records.compression import Compression, compress
from odradek.protocol.records.record import Record, write_varint

MAGIC_POSITION = 16
LAST_OFFSET_DELTA_POSITION = 23
RECORDS_COUNT_POSITION = 57
BOMB_BYTES = 4 * 1024 * 1024
"""Enough to show in a measurement of memory, little enough to be dropped hundreds of times."""


def sound_batches(draw: random.Random, now_ms: int) -> list[bytes]:
    """What honest producers send, in every codec."""
    batches = []
    for codec in Compression:
        for count in (1, 2, 7):
            records = [
                Record(key=f"key {index}".encode(), value=draw.randbytes(draw.randrange(60)), headers=(("h", b"v"),))
                for index in range(count)
            ]
            batches.append(build_batch(records, timestamp=now_ms, compression=codec))
    keyless = [Record(value=b"no key")]
    tombstone = [Record(key=b"k")]
    batches += [
        build_batch(keyless, timestamp=now_ms),
        build_batch(tombstone, timestamp=now_ms),
        build_batch(keyless),
        build_batch(keyless, timestamp=now_ms - 10**10),
        build_batch(tombstone, timestamp=now_ms, producer_id=7, producer_epoch=0, base_sequence=0),
        build_batch(tombstone, timestamp=now_ms, producer_id=7, producer_epoch=0, base_sequence=1),
        build_batch(tombstone, timestamp=now_ms, producer_id=7, producer_epoch=1, base_sequence=0),
    ]
    return [bytes(batch) for batch in batches]


def strange_batches(draw: random.Random, now_ms: int) -> list[bytes]:
    """What nobody should send; those whose content is wrong carry a checksum that is right, or it would not be seen."""
    records = [Record(key=b"key", value=b"value"), Record(key=b"other", value=None)]
    plain = bytes(build_batch(records, timestamp=now_ms))
    strange = [
        b"",
        plain[: HEADER_SIZE - 1],
        plain[:-1],
        plain[:HEADER_SIZE],
        plain + plain,
        plain + b"\0",
        _changed(plain, ATTRIBUTES_POSITION - 1, b"\xff", right_crc=False),
        _changed(plain, 0, struct.pack(">q", 5)),
        bytes(build_batch(records, timestamp=now_ms + 10**10)),
        bytes(build_batch(records, timestamp=now_ms, log_append_time=True)),
        bytes(build_batch(records, timestamp=now_ms, control=True)),
        bytes(build_batch(records, timestamp=now_ms, producer_id=9, producer_epoch=0, base_sequence=-1)),
        bytes(
            build_batch(records, timestamp=now_ms, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
        ),
    ]
    strange += [_changed(plain, MAGIC_POSITION, bytes((magic,))) for magic in (0, 1, 3, 255)]
    strange += [_changed(plain, ATTRIBUTES_POSITION, struct.pack(">h", codec)) for codec in (1, 2, 3, 4, 5, 6, 7)]
    strange += [_changed(plain, 8, struct.pack(">i", length)) for length in (-1, 0, 48, 49, 2**31 - 1, -(2**31))]
    for count in (-1, 0, 1, 3, 2**31 - 1):
        strange.append(_changed(plain, RECORDS_COUNT_POSITION, struct.pack(">i", count)))
        # And the lie that agrees with itself: only a look inside finds it.
        honest_looking = _changed(plain, LAST_OFFSET_DELTA_POSITION, struct.pack(">i", max(count, 1) - 1))
        strange.append(_changed(honest_looking, RECORDS_COUNT_POSITION, struct.pack(">i", max(count, 1))))
    for codec in Compression:
        strange.append(_with_payload(draw.randbytes(80), codec, now_ms))
        strange.append(_with_payload(compress(codec, draw.randbytes(200))[:-7], codec, now_ms))
        strange.append(_with_payload(compress(codec, draw.randbytes(200)), codec, now_ms))
        if codec is not Compression.NONE:
            strange.append(bomb(codec, BOMB_BYTES, now_ms))
    return strange


def bomb(codec: Compression, size: int, now_ms: int) -> bytes:
    """A batch of one record, sound as far as anyone reads, with very many zeros in it."""
    content = bytearray(b"\0\0\0\1")
    write_varint(content, size)
    content += bytes(size + 1)
    record = bytearray()
    write_varint(record, len(content))
    return _with_payload(compress(codec, record + content), codec, now_ms)


def _with_payload(payload: bytes, codec: Compression, now_ms: int) -> bytes:
    header = BATCH_HEADER.pack(
        0, HEADER_SIZE - LENGTH_OVERHEAD + len(payload), -1, 2, 0, codec, 0, now_ms, now_ms, -1, -1, -1, 1
    )
    batch = bytearray(header + payload)
    update_crc(batch)
    return bytes(batch)


def _changed(batch: bytes, position: int, content: bytes, *, right_crc: bool = True) -> bytes:
    changed = bytearray(batch)
    changed[position : position + len(content)] = content
    if right_crc:
        update_crc(changed)
    return bytes(changed)
