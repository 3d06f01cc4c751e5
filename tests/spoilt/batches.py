"""Batches that are wrong in one way each, and a few that only look so, with checksums that are right.

Written by hand, from numbers up: a mistake in `odradek.protocol` must not hide itself here. The same on every machine
but for what compressors make of it, which is why `answers.json` has the bytes beside the answers (`record.py`).
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import cramjam
import lz4.frame
from fastcrc.crc32 import iscsi

from odradek.protocol.records.compression import Compression, compress

TIME_MS = 1_700_000_000_000
FUTURE_MS = 4_000_000_000_000
NAMES = ("plain", "gzip", "snappy", "lz4", "zstd")

TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "compacted-append-time": {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"},
    "recent": {"message.timestamp.before.max.ms": "86400000"},
    "gzip": {"compression.type": "gzip"},
    "uncompressed": {"compression.type": "uncompressed"},
}


class Case(NamedTuple):
    name: str
    topic: str
    batch: bytes


def number(value: int) -> bytes:
    """Zigzag, seven bits a byte."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def field(content: bytes | None, length: int | None = None) -> bytes:
    return number((-1 if content is None else len(content)) if length is None else length) + (content or b"")


def record(
    offset: int = 0,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    *,
    delta: int = 0,
    headers: bytes = b"\0",
    attributes: int = 0,
    length: int | None = None,
    more: int = 0,
) -> bytes:
    """One record; its length is what it is, or `length`, or `more` than it is."""
    body = bytes((attributes,)) + number(delta) + number(offset) + field(key) + field(value) + headers
    return number(len(body) + more if length is None else length) + body


def batch(
    payload: bytes,
    count: int,
    *,
    codec: int = 0,
    attributes: int = 0,
    last_delta: int | None = None,
    base_offset: int = 0,
    base_time: int = TIME_MS,
    max_time: int = TIME_MS,
    producer: tuple[int, int, int] = (-1, -1, -1),
    magic: int = 2,
    length: int | None = None,
    crc: int | None = None,
) -> bytes:
    rest = (
        struct.pack(
            ">hiqqqhii",
            attributes | codec,
            count - 1 if last_delta is None else last_delta,
            base_time,
            max_time,
            *producer,
            count,
        )
        + payload
    )
    checksum = iscsi(rest) if crc is None else crc
    return struct.pack(">qiiBI", base_offset, len(rest) + 9 if length is None else length, -1, magic, checksum) + rest


def _payloads() -> Iterator[tuple[str, int, bytes]]:
    """Names, declared counts and records, before they are compressed."""
    three = record(0) + record(1, b"", b"") + record(2, None, None, headers=b"\2" + field(b"name") + field(None))
    yield "sound", 3, three
    yield "record-too-long", 1, record(more=1)
    yield "record-too-short", 1, record(more=-1)
    yield "record-much-too-long", 1, record(length=1000)
    yield "record-of-nothing", 1, record(length=0)
    yield "record-negative", 1, record(length=-1)
    yield "record-very-negative", 1, record(length=-(2**31))
    yield "record-largest", 1, record(length=2**31 - 1)
    yield "middle-record-too-short", 3, record(0) + record(1, more=-1) + record(2)
    yield "middle-record-too-long", 3, record(0) + record(1, more=2) + record(2)
    yield "length-of-six-bytes", 1, b"\x80\x80\x80\x80\x80\0" + record()
    yield "length-of-five-bytes-and-33-bits", 1, b"\x90\x80\x80\x80\x10" + record()[1:]
    yield "length-of-two-bytes-where-one-would-do", 1, bytes((record()[0] | 0x80, 0)) + record()[1:]
    yield "key-beyond-record", 1, _around(b"\0\0\0" + number(60) + b"key" + field(b"value") + b"\0")
    yield "key-into-value", 1, _around(b"\0\0\0" + number(9) + b"key" + field(b"value") + b"\0")
    yield "key-length-minus-two", 1, _around(b"\0\0\0" + number(-2) + field(b"value") + b"\0")
    yield "key-length-very-negative", 1, _around(b"\0\0\0" + number(-(2**31)) + field(b"value") + b"\0")
    yield "key-length-largest", 1, _around(b"\0\0\0" + number(2**31 - 1) + b"key" + field(b"value") + b"\0")
    yield "key-length-of-six-bytes", 1, _around(b"\0\0\0\x86\x80\x80\x80\x80\0key" + field(b"value") + b"\0")
    yield "value-beyond-record", 1, _around(b"\0\0\0" + field(b"key") + number(60) + b"value\0")
    yield "value-length-minus-two", 1, _around(b"\0\0\0" + field(b"key") + number(-2) + b"\0")
    yield "no-value-field", 1, _around(b"\0\0\0" + field(b"key"))
    yield "no-header-count", 1, _around(b"\0\0\0" + field(b"key") + field(b"value"))
    yield "bytes-behind-headers", 1, _around(b"\0\0\0" + field(b"key") + field(b"value") + b"\0\0\0")
    yield "headers-negative", 1, record(headers=number(-1))
    yield "headers-too-many", 1, record(headers=number(1000))
    yield "headers-largest", 1, record(headers=number(2**31 - 1))
    yield "headers-one-too-many", 1, record(headers=number(2) + field(b"name") + field(b"content"))
    yield "header-without-name", 1, record(headers=number(1) + number(-1) + field(b"content"))
    yield "header-name-beyond-record", 1, record(headers=number(1) + number(50) + b"name" + field(b"content"))
    yield "header-content-beyond-record", 1, record(headers=number(1) + field(b"name") + number(50) + b"content")
    yield "header-content-minus-two", 1, record(headers=number(1) + field(b"name") + number(-2))
    yield "header-name-not-utf-8", 1, record(headers=number(1) + field(b"\xff\xfe") + field(b"content"))
    yield "attributes-of-a-record", 1, record(attributes=0x7F)
    yield "compressed-record", 1, record(attributes=1)
    yield "timestamp-of-eleven-bytes", 1, _around(b"\0" + b"\x80" * 10 + b"\0\0" + field(b"k") + field(b"v") + b"\0")
    yield "timestamp-of-66-bits", 1, _around(b"\0" + b"\x80" * 9 + b"\2\0" + field(b"k") + field(b"v") + b"\0")
    yield "timestamp-delta-largest", 1, record(delta=2**63 - 1)
    yield "timestamp-delta-smallest", 1, record(delta=-(2**63))
    yield "timestamp-delta-negative", 1, record(delta=-1000)
    yield "max-timestamp-is-later", 2, record(0, delta=0) + record(1, delta=5)
    yield "future", 2, record(0) + record(1, delta=FUTURE_MS - TIME_MS)
    yield "offset-delta-repeated", 2, record(0) + record(0)
    yield "offset-delta-gap", 2, record(0) + record(2)
    yield "offset-delta-from-one", 2, record(1) + record(2)
    yield "offset-delta-negative", 1, record(-1)
    yield "offset-delta-of-six-bytes", 1, _around(b"\0\0\x80\x80\x80\x80\x80\0" + field(b"k") + field(b"v") + b"\0")
    yield "one-declared-two-there", 1, record(0) + record(1)
    yield "two-declared-one-there", 2, record(0)
    yield "ten-thousand-declared", 10_000, record(0)
    yield "largest-count-declared", 2**31 - 1, record(0)
    yield "byte-behind", 1, record(0) + b"\0"
    yield "garbage-behind", 1, record(0) + b"\xff" * 11
    yield "nothing", 1, b""
    yield "one-byte", 1, b"\0"
    yield "text", 1, b"these are no records, whoever says so, and nobody could read them"
    yield "ones", 1, b"\xff" * 40
    yield "zeros", 1, b"\0" * 40
    yield "cut-in-length", 2, record(0) + b"\x80"
    yield "cut-in-record", 2, record(0) + record(1)[:7]
    yield "cut-in-value", 2, record(0) + record(1, b"key", b"v" * 200)[:60]


def _around(body: bytes) -> bytes:
    return number(len(body)) + body


def _packed(codec: int, payload: bytes) -> bytes:
    return compress(Compression(codec), payload)


def _streams() -> Iterator[tuple[str, int, bytes]]:
    """Payloads that say they are compressed, and how many bytes of them are to be believed."""
    sound = record(0, b"key", bytes(range(256)) * 2)
    for codec, name in list(enumerate(NAMES))[1:]:
        packed = _packed(codec, sound)
        yield f"{name}-not-packed", codec, sound
        yield f"{name}-empty", codec, b""
        yield f"{name}-ones", codec, b"\xff" * 30
        yield f"{name}-packed-twice", codec, _packed(codec, packed)
        for cut in (1, 3, 8, len(packed) // 2):
            yield f"{name}-cut-{cut}", codec, packed[:-cut]
        yield f"{name}-first-bytes-only", codec, packed[:5]
        spoilt = bytearray(packed)
        spoilt[len(spoilt) // 2] ^= 0x55
        yield f"{name}-spoilt-in-the-middle", codec, bytes(spoilt)
        spoilt = bytearray(packed)
        spoilt[0] ^= 0xFF
        yield f"{name}-spoilt-magic", codec, bytes(spoilt)
        yield f"{name}-zero-behind", codec, packed + b"\0"
        yield f"{name}-garbage-behind", codec, packed + b"garbage behind the stream"
        other = 1 + codec % 4
        yield f"{name}-that-is-{NAMES[other]}", codec, _packed(other, sound)
        yield f"{name}-of-nothing", codec, _packed(codec, b"")
        yield f"{name}-in-two-streams", codec, _packed(codec, sound[:100]) + _packed(codec, sound[100:])
    spoilt_gzip = bytearray(gzip.compress(sound, mtime=0))
    spoilt_gzip[-6] ^= 1
    yield "gzip-wrong-checksum", 1, bytes(spoilt_gzip)
    spoilt_gzip = bytearray(gzip.compress(sound, mtime=0))
    spoilt_gzip[-1] ^= 1
    yield "gzip-wrong-size", 1, bytes(spoilt_gzip)
    yield "gzip-that-is-zlib", 1, zlib.compress(sound)
    yield "snappy-raw", 2, bytes(cramjam.snappy.compress_raw(sound))
    yield "snappy-raw-too-large", 2, b"\xff\xff\xff\xff\x0f" + bytes(cramjam.snappy.compress_raw(sound))[2:]
    xerial = _packed(2, sound)
    yield "snappy-header-only", 2, xerial[:16]
    yield "snappy-block-negative", 2, xerial[:16] + b"\xff\xff\xff\xff" + xerial[20:]
    yield "snappy-block-largest", 2, xerial[:16] + b"\x7f\xff\xff\xff" + xerial[20:]
    yield "snappy-block-empty", 2, xerial + bytes(4)
    yield "snappy-version-9", 2, xerial[:8] + struct.pack(">ii", 9, 9) + xerial[16:]
    yield "lz4-linked-blocks", 3, lz4.frame.compress(sound, block_linked=True)
    yield "lz4-linked-blocks-in-fact", 3, lz4.frame.compress(record(value=bytes(100_000)), block_linked=True)
    yield "lz4-content-checksum", 3, lz4.frame.compress(sound, block_linked=False, content_checksum=True)
    wrong = bytearray(lz4.frame.compress(sound, block_linked=False, content_checksum=True))
    wrong[-1] ^= 1
    yield "lz4-wrong-content-checksum", 3, bytes(wrong)
    yield "lz4-block-checksum", 3, lz4.frame.compress(sound, block_linked=False, block_checksum=True)
    wrong = bytearray(lz4.frame.compress(sound, block_linked=False, block_checksum=True))
    wrong[-5] ^= 1
    yield "lz4-wrong-block-checksum", 3, bytes(wrong)
    yield "lz4-with-size", 3, lz4.frame.compress(sound, block_linked=False, store_size=True)
    wrong = bytearray(_packed(3, sound))
    wrong[6] ^= 1
    yield "lz4-wrong-header-checksum", 3, bytes(wrong)


def _headers() -> Iterator[tuple[str, bytes]]:
    """Batches whose header is wrong, or unlike its records."""
    sound = record(0) + record(1)
    for codec, name in enumerate(NAMES):
        packed = _packed(codec, sound)

        def made(count: int = 2, codec: int = codec, packed: bytes = packed, **changes: int) -> bytes:
            return batch(packed, count, codec=codec, **changes)

        yield f"{name}-count-zero", made(0)
        yield f"{name}-count-negative", made(-1)
        yield f"{name}-last-delta-too-large", made(last_delta=5)
        yield f"{name}-last-delta-too-small", made(last_delta=0)
        yield f"{name}-last-delta-negative", made(last_delta=-1)
        yield f"{name}-delta-and-count-agree-on-three", made(3)
        yield f"{name}-delta-and-count-agree-on-one", made(1)
        yield f"{name}-max-timestamp-too-late", made(max_time=TIME_MS + 50)
        yield f"{name}-max-timestamp-in-the-future", made(max_time=FUTURE_MS)
        yield f"{name}-max-timestamp-none", made(max_time=-1)
        yield f"{name}-no-timestamps", made(base_time=-1, max_time=-1)
        yield f"{name}-timestamps-below-none", made(base_time=-5, max_time=-5)
        yield f"{name}-base-timestamp-smallest", made(base_time=-(2**63))
        yield f"{name}-append-time", made(attributes=8)
        yield f"{name}-append-time-none", made(attributes=8, max_time=-1)
        yield f"{name}-delete-horizon", made(attributes=0x40)
        yield f"{name}-unknown-attribute", made(attributes=0x80)
        yield f"{name}-control", made(attributes=0x20)
        yield f"{name}-base-offset", made(base_offset=7)
        yield f"{name}-wrong-checksum", made(crc=7)
    plain = batch(sound, 2)
    yield "producer-without-sequence", batch(sound, 2, producer=(9, 0, -1))
    yield "sequence-without-producer", batch(sound, 2, producer=(-1, -1, 5))
    yield "two-batches", plain + plain
    yield "two-batches-the-second-packed", plain + batch(_packed(1, sound), 2, codec=1)
    yield "trailing-byte", plain + b"\0"
    yield "trailing-header", plain + plain[:61]
    yield "trailing-eleven-bytes", plain + bytes(11)
    yield "trailing-twenty-zeros", plain + bytes(20)
    yield "one-byte-short", plain[:-1]
    yield "header-only", plain[:61]
    yield "header-only-and-it-says-so", batch(b"", 1)
    yield "part-of-a-header", plain[:40]
    yield "eleven-bytes", plain[:11]
    yield "one-byte", plain[:1]
    yield "empty", b""
    for length in (-1, 0, 13, 14, 48, 49, 2**31 - 1, -(2**31)):
        yield f"length-{length}", batch(sound, 2, length=length)
    for magic in (0, 1, 3, 127, 255):
        yield f"magic-{magic}", batch(sound, 2, magic=magic)
    for codec in (5, 6, 7):
        yield f"codec-{codec}", batch(sound, 2, codec=codec)


def cases() -> Iterator[Case]:
    """All of them; names are unique."""
    for codec, name in enumerate(NAMES):
        for what, count, payload in _payloads():
            yield Case(f"{name} {what}", "plain", batch(_packed(codec, payload), count, codec=codec))
    for what, codec, payload in _streams():
        yield Case(f"stream {what}", "plain", batch(payload, 1, codec=codec))
    for what, made in _headers():
        yield Case(f"header {what}", "plain", made)
    yield from _in_topics()


def _in_topics() -> Iterator[Case]:
    """What is wrong, or not, because of a topic's settings."""
    sound = record(0) + record(1)
    keyless = record(0) + record(1, None) + record(2, b"") + record(3, None, None)
    late = record(0, None) + record(1, delta=FUTURE_MS - TIME_MS) + record(2)
    broken = record(0, None) + record(1, more=1)
    payloads: list[tuple[str, Callable[[int], bytes]]] = [
        ("sound", lambda codec: batch(_packed(codec, sound), 2, codec=codec)),
        ("keyless", lambda codec: batch(_packed(codec, keyless), 4, codec=codec)),
        ("keyless-and-late", lambda codec: batch(_packed(codec, late), 3, codec=codec)),
        ("keyless-and-broken", lambda codec: batch(_packed(codec, broken), 2, codec=codec)),
        ("offset-gap", lambda codec: batch(_packed(codec, record(0) + record(3)), 2, codec=codec)),
        ("no-timestamps", lambda codec: batch(_packed(codec, sound), 2, codec=codec, base_time=-1, max_time=-1)),
        ("append-time", lambda codec: batch(_packed(codec, sound), 2, codec=codec, attributes=8)),
        ("append-time-keyless", lambda codec: batch(_packed(codec, keyless), 4, codec=codec, attributes=8)),
        ("not-packed", lambda codec: batch(sound, 2, codec=codec)),
    ]
    for topic in list(TOPICS)[1:]:
        for codec, name in enumerate(NAMES):
            if topic.startswith("compacted-") and codec not in (0, 1):
                continue
            for what, made in payloads:
                yield Case(f"{topic} {name} {what}", topic, made(codec))
