"""The four codecs of record batches, with a bound on what may come out.

Each library is imported when its codec is first met: a node that only passes batches on never pays for one. Garbage
raises CORRUPT_MESSAGE, output beyond the limit INVALID_RECORD, a codec whose library is not installed
UNSUPPORTED_COMPRESSION_TYPE.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from importlib import import_module
from typing import Any

from odradek.protocol.errors import ErrorCode, KafkaError

MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024
"""What one batch may become: far above any `max.message.bytes` in use, far below what would hurt a node."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = struct.Struct(">8sii")
_XERIAL_VERSIONS = b"\0\0\0\1\0\0\0\1"
_XERIAL_BLOCK_BYTES = 32 * 1024
_SIZE = struct.Struct(">i")
_PIECE_BYTES = 64 * 1024
_SLICE_BYTES = 64 * 1024
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_GZIP_MAGIC = b"\x1f\x8b"
_LZ4_FLAGS = 4
_LZ4_INDEPENDENT = 0x20
_SNAPPY_MOST = 32
"""A byte of snappy becomes 22 at most (a copy of 64 bytes takes three); with some room for the length in front."""


class Garbage(KafkaError):
    """Bytes that are no stream of their codec."""


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
    return bytes(data) if codec is Compression.NONE else b"".join(decompressed_pieces(codec, data, limit))


def decompressed_pieces(
    codec: Compression, data: bytes | memoryview, limit: int = MAX_DECOMPRESSED_BYTES, *, as_clients: bool = False
) -> Iterator[bytes]:
    """The same in pieces, none of them kept here; raises as soon as a stream is wrong, or `limit` is passed.

    `as_clients`: nothing but what every client reads, of which some know only the first of several streams.
    """
    size = 0
    for piece in _PIECES[codec](data, limit, as_clients):
        size += len(piece)
        _check_limit(size, limit)
        yield piece


def _plain_pieces(data: bytes | memoryview, limit: int, as_clients: bool) -> Iterator[bytes]:
    yield bytes(data)


def _gzip_pieces(data: bytes | memoryview, limit: int, as_clients: bool) -> Iterator[bytes]:
    view = memoryview(data)
    position = 0
    if as_clients and not view:
        raise _garbage("gzip", "there is nothing")
    while position < len(view):  # A gzip stream may have several members.
        if position and (as_clients or view[position : position + len(_GZIP_MAGIC)] != _GZIP_MAGIC):
            raise _follows("gzip")
        member = zlib.decompressobj(31)
        rest = b""
        try:
            while not member.eof:
                if not rest:
                    # In slices, because what is not consumed of one is copied.
                    rest = bytes(view[position : position + _SLICE_BYTES])
                    position += len(rest)
                piece = member.decompress(rest, _PIECE_BYTES)
                if not piece and not rest and not member.eof:
                    raise _garbage("gzip", "it ends too early")
                rest = member.unconsumed_tail
                if piece:
                    yield piece
        except zlib.error as wrong:
            raise _garbage("gzip", wrong) from None
        position -= len(member.unused_data)


def _snappy_compress(data: bytes) -> bytes:
    """Xerial's framing, which is what Java clients write and every client reads."""
    snappy = _library("cramjam", Compression.SNAPPY).snappy
    out = bytearray(_XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1))
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        out += _SIZE.pack(len(block))
        out += block
    return bytes(out)


def _snappy_pieces(data: bytes | memoryview, limit: int, as_clients: bool) -> Iterator[bytes]:
    packed = bytes(data)
    if not packed.startswith(_XERIAL_MAGIC):
        yield _snappy_block(packed, limit)
        return
    position = _XERIAL_HEADER.size
    if len(packed) < position:
        raise _garbage("snappy", "its header ends too early")
    if as_clients and packed[8:position] != _XERIAL_VERSIONS:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a snappy stream of a version that not all clients know")
    while position < len(packed):
        if packed.startswith(_XERIAL_MAGIC, position):
            if as_clients:
                raise _follows("snappy")
            position += _XERIAL_HEADER.size
            continue
        if position + 4 > len(packed):
            raise _follows("snappy") if as_clients else _garbage("snappy", "a block's size ends too early")
        (size,) = _SIZE.unpack_from(packed, position)
        position += 4
        if size < 0 or position + size > len(packed):
            raise _garbage("snappy", f"a block of {size} bytes where {len(packed) - position} are left")
        yield _snappy_block(packed[position : position + size], limit)
        position += size


def _snappy_block(block: bytes, limit: int) -> bytes:
    cramjam = _library("cramjam", Compression.SNAPPY)
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > _SNAPPY_MOST * len(block):  # Else so much would be set aside before anything is read.
            raise _garbage("snappy", f"{len(block)} bytes cannot become {size}")
        _check_limit(size, limit)
        return bytes(cramjam.snappy.decompress_raw(block))
    except (cramjam.DecompressionError, ValueError) as wrong:
        raise _garbage("snappy", wrong) from None


def _lz4_pieces(data: bytes | memoryview, limit: int, as_clients: bool) -> Iterator[bytes]:
    lz4 = _library("lz4.frame", Compression.LZ4)
    if as_clients:
        if len(data) < _LZ4_FLAGS + 1:
            raise _garbage("lz4", "its header ends too early")
        if not data[_LZ4_FLAGS] & _LZ4_INDEPENDENT:
            raise _garbage("lz4", "its blocks depend on each other, which Java clients cannot read")
    frames = _frames("lz4", memoryview(data), lz4.LZ4FrameDecompressor, (RuntimeError, ValueError))
    return _only_one("lz4", frames) if as_clients else (piece for piece, _ in frames)


def _zstd_pieces(data: bytes | memoryview, limit: int, as_clients: bool) -> Iterator[bytes]:
    zstd = _zstd()
    frames = _frames("zstd", memoryview(data), zstd.ZstdDecompressor, (zstd.ZstdError,))
    return _only_one("zstd", frames, _ZSTD_MAGIC) if as_clients else (piece for piece, _ in frames)


def _frames(
    codec: str, view: memoryview, start: Callable[[], Any], errors: tuple[type[Exception], ...]
) -> Iterator[tuple[bytes, memoryview]]:
    """Pieces of all frames; behind the last piece of each, an empty one and what follows the frame.

    Given and taken in slices. The library for lz4 copies what it has not used of what it was given, and sets aside as
    much as it may return. And memory of which more than 128 KiB are asked for comes from the system each time.
    """
    position = 0
    while position < len(view):
        frame = start()
        while not frame.eof:
            given = b""
            if frame.needs_input:
                given = bytes(view[position : position + _SLICE_BYTES])
                position += len(given)
                if not given:
                    raise _garbage(codec, "it ends too early")
            try:
                piece = frame.decompress(given, _PIECE_BYTES)
            except errors as wrong:
                raise _garbage(codec, wrong) from None
            if piece:
                yield piece, view[:0]
        position -= len(frame.unused_data or b"")
        yield b"", view[position:]


def _only_one(codec: str, frames: Iterator[tuple[bytes, memoryview]], magic: bytes = b"") -> Iterator[bytes]:
    """Of the frames the first, behind which no other may follow: what begins with `magic`, or anything."""
    for piece, behind in frames:
        if len(behind) and behind[: len(magic)] == magic:
            raise _follows(codec)
        yield piece


_PIECES: dict[Compression, Callable[[bytes | memoryview, int, bool], Iterator[bytes]]] = {
    Compression.NONE: _plain_pieces,
    Compression.GZIP: _gzip_pieces,
    Compression.SNAPPY: _snappy_pieces,
    Compression.LZ4: _lz4_pieces,
    Compression.ZSTD: _zstd_pieces,
}


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
            f"{codec.name.lower()} needs a library that is not installed, though Odradek depends on it: "
            f"pip install {name.partition('.')[0] if name != 'backports.zstd' else name}",
        ) from None


def _check_limit(size: int, limit: int) -> None:
    if size > limit:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"a batch decompresses to more than {limit} bytes")


def _garbage(codec: str, why: object) -> Garbage:
    return Garbage(ErrorCode.CORRUPT_MESSAGE, f"the records are no valid {codec} stream: {why}")


def _follows(codec: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"something follows the {codec} stream that the records are in")
