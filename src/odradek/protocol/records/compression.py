"""The four codecs of record batches, with a bound on what may come out.

Each library is imported when its codec is first met: a node that only passes batches on never pays for one. Garbage
raises CORRUPT_MESSAGE, output beyond the limit INVALID_RECORD, a codec whose library is not installed
UNSUPPORTED_COMPRESSION_TYPE.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from importlib import import_module
from typing import Any

from odradek.protocol.errors import ErrorCode, KafkaError

MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024
"""What one batch may become: far above any `max.message.bytes` in use, far below what would hurt a node."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = struct.Struct(">8sii")
_XERIAL_BLOCK_BYTES = 32 * 1024
_SIZE = struct.Struct(">i")
_LZ4_PIECE_BYTES = 256 * 1024


class Compression(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


DEFAULT_LEVELS = {Compression.GZIP: -1, Compression.LZ4: 9, Compression.ZSTD: 3}


def compression_of(code: int) -> Compression:
    """The codec with this number; CORRUPT_MESSAGE for 5 to 7, which nobody has defined."""
    try:
        return Compression(code)
    except ValueError:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"unknown compression type {code}") from None


def compress(codec: Compression, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """The records of a batch in compressed form, framed as Kafka's clients expect."""
    if level is None:
        level = DEFAULT_LEVELS.get(codec, 0)
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            gzip = zlib.compressobj(level, zlib.DEFLATED, 31)
            return gzip.compress(data) + gzip.flush()
        case Compression.SNAPPY:
            return _snappy_compress(bytes(data))
        case Compression.LZ4:
            lz4 = _library("lz4.frame", codec)
            packed: bytes = lz4.compress(
                bytes(data), compression_level=_lz4_level(level), block_size=4, block_linked=False
            )
            return packed
        case Compression.ZSTD:
            zstd: bytes = _zstd().compress(bytes(data), level)
            return zstd


def decompress(codec: Compression, data: bytes | memoryview, limit: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """The records of a batch in plain form; never more than `limit` bytes, however small the input was."""
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return _gzip_decompress(data, limit)
        case Compression.SNAPPY:
            return _snappy_decompress(bytes(data), limit)
        case Compression.LZ4:
            return _lz4_decompress(data, limit)
        case Compression.ZSTD:
            return _zstd_decompress(data, limit)


def _gzip_decompress(data: bytes | memoryview, limit: int) -> bytes:
    out = bytearray()
    rest = bytes(data)
    while rest:  # A gzip stream may have several members.
        member = zlib.decompressobj(31)
        try:
            out += member.decompress(rest, limit + 1 - len(out))
        except zlib.error as wrong:
            raise _garbage("gzip", wrong) from None
        _check_limit(len(out), limit)
        if not member.eof:
            raise _garbage("gzip", "it ends too early")
        rest = member.unused_data
    return bytes(out)


def _snappy_compress(data: bytes) -> bytes:
    """Xerial's framing, which is what Java clients write and every client reads."""
    snappy = _library("cramjam", Compression.SNAPPY).snappy
    out = bytearray(_XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1))
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        out += _SIZE.pack(len(block))
        out += block
    return bytes(out)


def _snappy_decompress(data: bytes, limit: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _snappy_block(data, limit)
    out = bytearray()
    position = _XERIAL_HEADER.size
    if len(data) < position:
        raise _garbage("snappy", "its header ends too early")
    while position < len(data):
        if position + 4 > len(data):
            raise _garbage("snappy", "a block's size ends too early")
        (size,) = _SIZE.unpack_from(data, position)
        position += 4
        if size < 0 or position + size > len(data):
            raise _garbage("snappy", f"a block of {size} bytes where {len(data) - position} are left")
        out += _snappy_block(data[position : position + size], limit - len(out))
        position += size
    return bytes(out)


def _snappy_block(block: bytes, limit: int) -> bytes:
    cramjam = _library("cramjam", Compression.SNAPPY)
    try:
        _check_limit(cramjam.snappy.decompress_raw_len(block), limit)
        return bytes(cramjam.snappy.decompress_raw(block))
    except (cramjam.DecompressionError, ValueError) as wrong:
        raise _garbage("snappy", wrong) from None


def _lz4_decompress(data: bytes | memoryview, limit: int) -> bytes:
    lz4 = _library("lz4.frame", Compression.LZ4)
    out = bytearray()
    rest = bytes(data)
    while rest:
        frame = lz4.LZ4FrameDecompressor()
        while not frame.eof:
            try:
                # Piece by piece: the library sets aside as much as it may return, however little there is.
                out += frame.decompress(rest, _LZ4_PIECE_BYTES)
            except (RuntimeError, ValueError) as wrong:
                raise _garbage("lz4", wrong) from None
            _check_limit(len(out), limit)
            if frame.needs_input and not frame.eof:
                raise _garbage("lz4", "it ends too early")
            rest = b""
        rest = frame.unused_data or b""
    return bytes(out)


def _zstd_decompress(data: bytes | memoryview, limit: int) -> bytes:
    zstd = _zstd()
    out = bytearray()
    rest = bytes(data)
    while rest:
        frame = zstd.ZstdDecompressor()
        try:
            out += frame.decompress(rest, limit + 1 - len(out))
        except zstd.ZstdError as wrong:
            raise _garbage("zstd", wrong) from None
        _check_limit(len(out), limit)
        if not frame.eof:
            raise _garbage("zstd", "it ends too early")
        rest = frame.unused_data
    return bytes(out)


def _lz4_level(level: int) -> int:
    """Kafka's levels 1 to 17 all mean high compression, which the library knows as 3 to 16."""
    return max(3, min(level, 16))


def _zstd() -> Any:
    """The standard library has it from Python 3.14 on; before, a backport of the same interface."""
    try:
        return import_module("compression.zstd")
    except ImportError:
        return _library("backports.zstd", Compression.ZSTD)


def _library(name: str, codec: Compression) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"{codec.name.lower()} needs a library that is not installed: pip install 'odradek[compression]'",
        ) from None


def _check_limit(size: int, limit: int) -> None:
    if size > limit:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"a batch decompresses to more than {limit} bytes")


def _garbage(codec: str, why: object) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the records are no valid {codec} stream: {why}")
