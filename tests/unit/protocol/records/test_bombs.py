"""A gigabyte out of a megabyte: looked at in constant memory, and not beyond the limit."""

from __future__ import annotations

import subprocess
import sys
import zlib

import cramjam
import lz4.frame
import pytest

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.check import check_records
from odradek.protocol.records.compression import Compression, decompressed_pieces
from odradek.protocol.records.record import write_varint

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PACKED = [codec for codec in Compression if codec is not Compression.NONE]
GIB = 1 << 30
ROOM_KIB = 24 * 1024
"""What the process may grow by: libraries that are loaded, their windows, and pieces."""


def head(size: int) -> bytes:
    """The start of one record with so many zeros as its value, up to them; one more zero ends it."""
    content = bytearray(b"\0\0\0\1")
    write_varint(content, size)
    out = bytearray()
    write_varint(out, len(content) + size + 1)
    return bytes(out + content)


def bomb(codec: Compression, size: int) -> bytes:
    """One record of so many bytes, packed a piece at a time."""
    piece = bytes(1 << 20)
    if codec is Compression.SNAPPY:
        raw = cramjam.snappy.compress_raw
        blocks = [bytes(raw(head(size)))] + [bytes(raw(piece))] * (size >> 20) + [bytes(raw(b"\0"))]
        return b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + b"".join(len(each).to_bytes(4) + each for each in blocks)
    made = {
        Compression.GZIP: lambda: zlib.compressobj(9, zlib.DEFLATED, 31),
        Compression.LZ4: lambda: lz4.frame.LZ4FrameCompressor(block_linked=False),
        Compression.ZSTD: zstd.ZstdCompressor,
    }[codec]()
    start = made.begin() if codec is Compression.LZ4 else b""
    packed = [
        start,
        made.compress(head(size)),
        *(made.compress(piece) for _ in range(size >> 20)),
        made.compress(b"\0"),
    ]
    return b"".join([*packed, made.flush()])


def look(codec: Compression, packed: bytes, limit: int) -> int:
    return check_records(
        memoryview(packed), codec, base_timestamp=7, count=1, flags=0, lowest=0, highest=9, limit=limit
    )


def peak_kib() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="NOT TESTED: memory is measured as Linux tells it")
@pytest.mark.parametrize("codec", PACKED)
def test_memory_does_not_follow_what_comes_out(codec: Compression) -> None:
    subprocess.run([sys.executable, __file__, codec.name], check=True, timeout=240)


@pytest.mark.parametrize("codec", PACKED)
def test_nothing_is_unpacked_beyond_the_limit(codec: Compression) -> None:
    packed = bomb(codec, 16 << 20)
    assert look(codec, packed, 17 << 20) == 7
    with pytest.raises(KafkaError) as refused:
        look(codec, packed, 15 << 20)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    pieces: list[int] = []
    with pytest.raises(KafkaError):
        pieces.extend(map(len, decompressed_pieces(codec, packed, 15 << 20)))
    assert 14 << 20 < sum(pieces) <= 15 << 20


def test_a_block_of_snappy_that_could_not_become_so_much_is_not_tried() -> None:
    with pytest.raises(KafkaError) as refused:
        look(Compression.SNAPPY, b"\xff\xff\xff\x3f" + bytes(1_000), 1 << 30)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "cannot become" in refused.value.message


if __name__ == "__main__":
    chosen = Compression[sys.argv[1]]
    small = bomb(chosen, 8 << 20)
    assert look(chosen, small, GIB) == 7  # So that libraries are loaded, and their windows made.
    large = bomb(chosen, GIB - (1 << 20))
    before = peak_kib()
    assert look(chosen, large, GIB) == 7
    grown = peak_kib() - before - len(large) // 1024  # The codecs take bytes, so there is a copy of what came.
    assert grown < ROOM_KIB, f"{grown} KiB for {len(large)} bytes"
