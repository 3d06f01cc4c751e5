"""Records in columns, as compaction reads them; `make test` runs this with the native module and without it."""

from __future__ import annotations

from array import array
from hashlib import md5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records import columns
from odradek.protocol.records.batch import HEADER_SIZE, build_batch, decode_records, frame_batch, read_header
from odradek.protocol.records.columns import read_columns
from odradek.protocol.records.compression import Compression, compress, decompress
from odradek.protocol.records.pure import HAS_KEY, HAS_VALUE
from odradek.protocol.records.record import Record, encode_record

TIME_MS = 1_700_000_000_000

contents = st.none() | st.binary(max_size=150)
records = st.builds(Record, key=contents, value=contents, timestamp=st.integers(0, 2**62))


def in_full(batch: bytes | bytearray) -> list[tuple[int, int, bytes, int, bytes]]:
    """Of every record its offset, timestamp, bytes, flags and hash."""
    found = []
    for body, (offsets, timestamps, positions, flags, hashes) in read_columns(bytes(batch), read_header(batch)):
        assert all(isinstance(each, array) for each in (offsets, timestamps, positions))
        assert len(timestamps) == len(flags) == len(offsets) == len(positions) - 1 == len(hashes) / 16
        found.extend(
            (offsets[n], timestamps[n], body[positions[n] : positions[n + 1]], flags[n], hashes[n * 16 : n * 16 + 16])
            for n in range(len(offsets))
        )
    return found


def cleaned(deltas: list[int], *, last: int | None = None, count: int | None = None) -> bytearray:
    """A batch of which only these offset deltas are left."""
    body = bytearray()
    for delta in deltas:
        body += encode_record(delta, delta, b"%d" % delta, b"value", ())
    batch = frame_batch(
        body,
        attributes=0,
        records_count=len(deltas) if count is None else count,
        base_timestamp=TIME_MS,
        max_timestamp=TIME_MS,
        base_offset=1_000,
    )
    batch[23:27] = (max(deltas) if last is None else last).to_bytes(4, "big")
    return batch


@given(st.lists(records, min_size=1, max_size=30), st.sampled_from(Compression), st.integers(1, 40))
def test_columns_tell_what_the_records_are(given_records: list[Record], codec: Compression, most: int) -> None:
    batch = build_batch(given_records, compression=codec, base_offset=77)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(columns, "_MOST_RECORDS", most)
        found = in_full(batch)
    assert b"".join(encoded for _, _, encoded, _, _ in found) == decompress(codec, bytes(batch[HEADER_SIZE:]))
    assert [(offset, timestamp, flags, key_hash) for offset, timestamp, _, flags, key_hash in found] == [
        (
            each.offset,
            each.timestamp,
            (HAS_KEY if each.key is not None else 0) | (HAS_VALUE if each.value is not None else 0),
            bytes(16) if each.key is None else md5(each.key).digest(),
        )
        for each in decode_records(batch)
    ]


@pytest.mark.parametrize("length", [54, 55, 56, 63, 64, 65, 119, 120, 128, 300_000])
def test_keys_of_any_length_are_hashed(length: int) -> None:
    key = bytes(n % 251 for n in range(length))
    assert [each[4] for each in in_full(build_batch([Record(key), Record(key[1:])]))] == [
        md5(key).digest(),
        md5(key[1:]).digest(),
    ]


def test_a_cleaned_batch_has_gaps() -> None:
    assert [each[0] for each in in_full(cleaned([3, 5, 2_000], last=5_000))] == [1_003, 1_005, 3_000]
    assert in_full(cleaned([3], count=0)[:HEADER_SIZE]) == []


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_records_larger_than_what_is_unpacked_at_once(codec: Compression) -> None:
    given_records = [Record(b"a", bytes(700_000)), Record(b"b", b"v"), Record(b"k" * 200_000, bytes(100)), Record(b"d")]
    batch = build_batch(given_records, compression=codec)
    found = in_full(batch)
    assert [each[4] for each in found] == [md5(each.key or b"").digest() for each in given_records]
    assert b"".join(each[2] for each in found) == decompress(codec, bytes(batch[HEADER_SIZE:]))


@pytest.mark.parametrize(
    "batch",
    [
        cleaned([0, 1], count=1),
        cleaned([0, 1], count=3),
        cleaned([0, 1], last=0),
        cleaned([1, 1]),
        cleaned([2, 1]),
        cleaned([-1, 1]),
        cleaned([0, 1])[:-1],
        cleaned([0, 1]) + b"\0",
        cleaned([0, 1]) + b"\x80\x80\x80\x80\x80\x01",
        cleaned([0], count=2) + b"\xff\xff\xff\xff\x0f",
        cleaned([0], count=2) + b"\x80",
    ],
    ids=range(11),
)
@pytest.mark.parametrize("codec", Compression)
def test_what_is_not_as_declared_is_refused(batch: bytearray, codec: Compression) -> None:
    batch = batch[:HEADER_SIZE] + compress(codec, batch[HEADER_SIZE:])
    batch[22] = codec
    with pytest.raises(KafkaError, match="cannot be read") as refused:
        in_full(batch)
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_nothing_is_unpacked_behind_what_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked = 0

    def pieces(*_: object) -> object:
        nonlocal unpacked
        for _ in range(100):
            unpacked += 1
            yield b"\x0f" * 1_000

    monkeypatch.setattr(columns, "decompressed_pieces", pieces)
    with pytest.raises(KafkaError):
        in_full(cleaned([0], count=1_000_000))
    assert unpacked == 1
