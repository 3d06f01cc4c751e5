"""Batches against aiokafka's independent reader and writer, golden bytes, and bytes that are no batch."""

import struct
from contextlib import suppress

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER_SIZE,
    build_batch,
    crc_matches,
    decode_records,
    iter_batches,
    read_header,
    update_crc,
)
from odradek.protocol.records.compression import Compression
from odradek.protocol.records.record import Record

TIMESTAMPS = st.integers(0, 1 << 42)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
RECORDS = st.lists(
    st.builds(
        Record,
        key=st.none() | st.binary(max_size=20),
        value=st.none() | st.binary(max_size=200),
        headers=HEADERS,
        timestamp=TIMESTAMPS,
    ),
    min_size=1,
    max_size=8,
)
CODECS = st.sampled_from(list(Compression))


@given(RECORDS, CODECS)
def test_aiokafka_reads_what_is_built(records: list[Record], codec: Compression) -> None:
    batch = build_batch(records, base_offset=7, compression=codec, producer_id=3, producer_epoch=1, base_sequence=9)
    theirs = DefaultRecordBatch(bytearray(batch))
    assert theirs.validate_crc()
    assert (theirs.base_offset, theirs.producer_id, theirs.producer_epoch) == (7, 3, 1)
    read = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert read == [(7 + n, r.timestamp, r.key, r.value, r.headers) for n, r in enumerate(records)]


@given(RECORDS, CODECS)
def test_what_aiokafka_builds_is_read(records: list[Record], codec: Compression) -> None:
    builder = DefaultRecordBatchBuilder(2, int(codec), 0, -1, -1, -1, 1 << 20)
    for number, record in enumerate(records):
        appended = builder.append(number, record.timestamp, record.key, record.value, list(record.headers))
        assert appended is not None
    batch = builder.build()
    assert crc_matches(batch)
    read = list(decode_records(batch))
    assert [(r.key, r.value, r.headers, r.timestamp) for r in read] == [
        (r.key, r.value, r.headers, r.timestamp) for r in records
    ]
    assert [r.offset for r in read] == list(range(len(records)))


def test_golden_bytes() -> None:
    record = Record(b"k", b"v", (("h", None),), timestamp=1000)
    batch = build_batch([record], base_offset=5, leader_epoch=2, producer_id=11, producer_epoch=3, base_sequence=4)
    assert batch[:17] == bytes.fromhex("00000000000000050000003d0000000202")
    assert batch[ATTRIBUTES_POSITION:] == bytes.fromhex(
        "00000000000000000000000003e800000000000003e8000000000000000b0003000000040000000116000000026b027602026801"
    )


def test_several_batches_and_a_partial_one() -> None:
    one, two = build_batch([Record(value=b"1")]), build_batch([Record(value=b"2")], base_offset=1)
    assert list(iter_batches(one + two)) == [one, two]
    for cut in range(1, len(two)):
        assert list(iter_batches(one + two[:-cut])) == [one]


def test_a_length_below_a_header_is_corrupt() -> None:
    batch = build_batch([Record(value=b"1")])
    batch[8:12] = struct.pack(">i", HEADER_SIZE - 13)
    with pytest.raises(KafkaError) as refused:
        list(iter_batches(batch))
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("declared", [0, 1, 3, 1 << 30])
def test_a_count_that_lies_harms_its_reader_only(declared: int) -> None:
    batch = build_batch([Record(value=b"1"), Record(value=b"2")])
    struct.pack_into(">i", batch, HEADER_SIZE - 4, declared)
    update_crc(batch)
    with pytest.raises(KafkaError) as refused:
        list(decode_records(batch))
    assert refused.value.code is ErrorCode.INVALID_RECORD


@given(RECORDS, st.data())
def test_damaged_records_raise_nothing_but_a_kafka_error(records: list[Record], data: st.DataObject) -> None:
    batch = build_batch(records)
    at = data.draw(st.integers(HEADER_SIZE, len(batch) - 1))
    batch[at] = data.draw(st.integers(0, 255))
    with suppress(KafkaError):
        list(decode_records(batch))


def test_append_time_is_every_records_timestamp() -> None:
    batch = build_batch([Record(timestamp=5), Record(timestamp=9)], log_append_time=True)
    assert [record.timestamp for record in decode_records(batch)] == [9, 9]


def test_crc_covers_attributes_and_what_follows() -> None:
    batch = build_batch([Record(value=b"x")])
    for at in range(len(batch)):
        changed = bytearray(batch)
        changed[at] ^= 1
        assert crc_matches(changed) == (at < CRC_POSITION)


def test_a_header_needs_its_bytes() -> None:
    with pytest.raises(KafkaError) as refused:
        read_header(bytes(60))
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
