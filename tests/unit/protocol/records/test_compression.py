"""Codecs: there and back, other people's framing, garbage, bombs and missing libraries."""

import sys
import zlib

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.compression import Compression, compress, compression_of, decompress

PACKED = [codec for codec in Compression if codec is not Compression.NONE]


@given(st.binary(max_size=5000), st.sampled_from(list(Compression)))
def test_there_and_back(data: bytes, codec: Compression) -> None:
    assert decompress(codec, memoryview(compress(codec, data))) == data


@pytest.mark.parametrize("codec", PACKED)
def test_several_blocks(codec: Compression) -> None:
    data = b"".join(number.to_bytes(4) for number in range(50_000))
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("level", [1, 3, 9])
def test_levels(codec: Compression, level: int) -> None:
    assert decompress(codec, compress(codec, b"abc" * 100, level)) == b"abc" * 100


def test_raw_snappy_as_librdkafka_sends_it() -> None:
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(b"hello" * 50))) == b"hello" * 50


def test_lz4_with_linked_blocks_and_checksums() -> None:
    packed = lz4.frame.compress(b"hello" * 50_000, block_linked=True, content_checksum=True, store_size=True)
    assert decompress(Compression.LZ4, packed) == b"hello" * 50_000


@pytest.mark.parametrize("codec", PACKED)
@given(garbage=st.binary(min_size=1, max_size=100))
def test_garbage_is_corrupt(codec: Compression, garbage: bytes) -> None:
    if codec is Compression.SNAPPY:
        # A raw block has no magic, so some garbage is one; this has the other framing, and a block size beyond the end.
        garbage = b"\x82SNAPPY\0" + bytes(8) + b"\x7f" + garbage
    with pytest.raises(KafkaError) as refused:
        decompress(codec, garbage)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", PACKED)
def test_every_cut_is_corrupt(codec: Compression) -> None:
    packed = compress(codec, bytes(range(256)) * 4)
    for end in range(1, len(packed)):
        if codec is Compression.SNAPPY and end == 16:
            continue  # The header alone is a stream of no blocks.
        with pytest.raises(KafkaError) as refused:
            decompress(codec, packed[:end])
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_stops_at_the_limit(codec: Compression) -> None:
    packed = compress(codec, bytes(1_000_000))
    assert len(decompress(codec, packed, limit=1_000_000)) == 1_000_000
    with pytest.raises(KafkaError) as refused:
        decompress(codec, packed, limit=999_999)
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_a_snappy_block_that_lies_about_its_size() -> None:
    with pytest.raises(KafkaError) as refused:
        decompress(Compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(10), limit=1 << 20)
    assert refused.value.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def test_gzip_of_several_members() -> None:
    member = zlib.compressobj(wbits=31)
    packed = member.compress(b"one") + member.flush()
    assert decompress(Compression.GZIP, packed + packed) == b"oneone"


def test_a_missing_library_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(KafkaError, match=r"pip install") as refused:
        decompress(Compression.SNAPPY, b"\x00")
    assert refused.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_unknown_codecs() -> None:
    for code in (5, 6, 7):
        with pytest.raises(KafkaError) as refused:
            compression_of(code)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
