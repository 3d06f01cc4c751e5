"""Varints and single records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.record import encode_record, read_record, read_varint, write_varint

LONGS = st.integers(-(1 << 63), (1 << 63) - 1)


@given(LONGS)
def test_varints_there_and_back(number: int) -> None:
    out = bytearray()
    write_varint(out, number)
    assert read_varint(bytes(out), 0) == (number, len(out))
    assert len(out) <= 10


@pytest.mark.parametrize(
    ("number", "encoded"), [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101")]
)
def test_varint_golden_bytes(number: int, encoded: str) -> None:
    out = bytearray()
    write_varint(out, number)
    assert out.hex() == encoded


@pytest.mark.parametrize("encoded", [b"", b"\x80", b"\x80" * 11, b"\xff" * 10])
def test_varints_that_do_not_end(encoded: bytes) -> None:
    with pytest.raises(KafkaError) as refused:
        read_varint(encoded, 0)
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_every_cut_of_a_record_is_refused() -> None:
    out = encode_record(5, 1, b"key", b"value", (("a", b"1"), ("b", None)))
    record, end = read_record(out, 0, base_offset=10, base_timestamp=100)
    assert (record.offset, record.timestamp, record.key, record.value) == (11, 105, b"key", b"value")
    assert (record.headers, end) == ((("a", b"1"), ("b", None)), len(out))
    for cut in range(len(out)):
        with pytest.raises(KafkaError):
            read_record(out[:cut], 0, base_offset=10, base_timestamp=100)


def test_header_names_that_are_no_text_are_read_as_java_reads_them() -> None:
    out = bytearray(encode_record(0, 0, None, None, (("a", b"1"),)))
    out[out.index(b"a")] = 0xFF
    record, _ = read_record(bytes(out), 0, base_offset=0, base_timestamp=0)
    assert record.headers == (("\ufffd", b"1"),)
