"""The native module and its twin in Python, and readers that nobody here wrote: the same answers to the same bytes."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch
from tests.spoilt.batches import batch, record
from tests.spoilt.record import recorded

from odradek.protocol.errors import KafkaError
from odradek.protocol.records import native, pure
from odradek.protocol.records.batch import HEADER_SIZE, build_batch, decode_records, read_header
from odradek.protocol.records.pure import FIXED_TIMESTAMP, NEEDS_KEY, REFUSES_TIMESTAMP, Fault
from odradek.protocol.records.record import Record, encode_in_python, read_record, read_varint

odradek_native = pytest.importorskip("odradek_native", reason="NOT TESTED: the native module is not installed")

TIME_MS = 1_700_000_000_000
INT64 = st.integers(-(2**63), 2**63 - 1)
FLAGS = st.sampled_from((0, NEEDS_KEY, FIXED_TIMESTAMP, REFUSES_TIMESTAMP, NEEDS_KEY | REFUSES_TIMESTAMP))


def in_pieces(module: Any, payload: bytes, size: int, *rules: int) -> Any:
    looking = module.Check(*rules)
    for start in range(0, len(payload), size):
        if not looking.feed(payload[start : start + size]):
            break
    return looking.finish()


def attributes_in(payload: bytes | bytearray) -> list[int]:
    found = []
    position = 0
    while position < len(payload):
        length, position = read_varint(payload, position)
        found.append(payload[position])
        position += length
    return found


def assert_alike(payload: bytes, size: int, *rules: int) -> Any:
    found = pure.check(payload, *rules)
    assert odradek_native.check(payload, *rules) == found
    assert in_pieces(pure, payload, size, *rules) == found
    assert in_pieces(odradek_native, payload, size, *rules) == found
    return found


def assert_in_the_same_columns(payload: bytes, count: int, base_timestamp: int, *, base_offset: int = 100) -> int:
    """How many records there are to both."""
    found = 0
    above, last = base_offset - 1, min(base_offset + count - 1, 2**63 - 1)
    for most in (1, 3, count):
        wanted = payload, 0, most, base_offset, base_timestamp, above, last
        columns = pure.offsets_keys_hashes(*wanted)
        assert odradek_native.offsets_keys_hashes(*wanted) == columns
        assert len(columns[1]) == len(columns[3]) == len(columns[2]) - 1 == len(columns[4]) / pure.HASH_BYTES
        found = len(columns[0])
    return found


texts = st.text(max_size=4)
contents = st.none() | st.binary(max_size=90)
records = st.builds(
    Record,
    key=contents,
    value=contents,
    headers=st.lists(st.tuples(texts, contents), max_size=2).map(tuple),
    timestamp=st.integers(TIME_MS - 200_000, TIME_MS + 200_000) | st.integers(0, 2**62),
)


@given(st.lists(records, min_size=1, max_size=12), st.integers(1, 200))
def test_what_is_sound_is_sound_to_both(given_records: list[Record], size: int) -> None:
    made = build_batch(given_records)
    header = read_header(made)
    rules = header.base_timestamp, header.records_count, 0, -(2**63), 2**63 - 1
    assert assert_alike(bytes(made[HEADER_SIZE:]), size, *rules) == header.max_timestamp
    theirs = DefaultRecordBatch(bytes(made))
    assert [(each.timestamp, each.key, each.value) for each in theirs] == [
        (each.timestamp, each.key, each.value) for each in given_records
    ]


@settings(max_examples=int(os.environ.get("ODRADEK_TWIN_EXAMPLES", "600")), deadline=None)
@given(
    st.lists(records, min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255), st.sampled_from("=^-+")), min_size=1, max_size=3),
    st.integers(1, 60),
    FLAGS,
    st.tuples(INT64, INT64),
    st.integers(-1, 1),
)
def test_what_is_spoilt_is_judged_alike(
    given_records: list[Record],
    spoils: list[tuple[int, int, str]],
    size: int,
    flags: int,
    bounds: tuple[int, int],
    lie: int,
) -> None:
    made = build_batch(given_records)
    payload = bytearray(made[HEADER_SIZE:])
    for place, byte, how in spoils:
        at = place % (len(payload) or 1)
        if how == "=":
            payload[at : at + 1] = bytes((byte,))
        elif how == "^" and payload:
            payload[at] ^= 1 << byte % 8
        elif how == "-":
            del payload[at : at + byte % 5]
        else:
            payload[at:at] = bytes((byte,))
    header = read_header(made)
    count = max(1, header.records_count + lie)
    found = assert_alike(bytes(payload), size, header.base_timestamp, count, flags, min(bounds), max(bounds))
    in_columns = assert_in_the_same_columns(bytes(payload), count, header.base_timestamp)
    assert in_columns == count or (isinstance(found, tuple) and found[0])
    if isinstance(found, int) and lie == 0:
        # Whoever reads it finds as many whole records.
        spoilt = batch(bytes(payload), count, base_time=header.base_timestamp)
        read = list(decode_records(spoilt))
        assert len(read) == count
        # Names that are no text end kafka-python, and it takes a record's attributes for a number of variable length.
        if max(attributes_in(payload)) < 0x80 and not any(
            "\ufffd" in name for each in read for name, _ in each.headers
        ):
            assert len(list(DefaultRecordBatch(spoilt))) == count


@given(st.lists(records, min_size=1, max_size=40), st.integers(1, 60))
def test_records_are_written_and_read_alike(given_records: list[Record], most: int) -> None:
    native_body, position, count = b"", 0, 0
    pure_body = bytearray()
    for index, each in enumerate(given_records):
        fields = each.timestamp - TIME_MS, index, each.key, each.value, each.headers
        native_body += odradek_native.encode(*fields)
        pure_body += encode_in_python(*fields)
    assert native_body == pure_body
    while count < len(given_records):
        found, behind = odradek_native.decode(native_body, position, most, 100, TIME_MS)
        assert 0 < len(found) <= most
        for told in found:
            record_read, position = read_record(native_body, position, base_offset=100, base_timestamp=TIME_MS)
            assert Record(*told) == record_read
        assert position == behind
        count += len(found)
    assert odradek_native.decode(native_body, position, most, 100, TIME_MS) == ([], position)


@settings(max_examples=300, deadline=None)
@given(st.lists(records, min_size=1, max_size=5), st.integers(0, 400), st.integers(0, 255))
def test_spoilt_records_are_read_alike(given_records: list[Record], place: int, byte: int) -> None:
    """What is unusual is left to Python, and so read, or refused, in the same words."""
    made = build_batch(given_records)
    made[HEADER_SIZE + place % (len(made) - HEADER_SIZE)] = byte
    outcomes = []
    for decode in (odradek_native.decode, None):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(native, "decode", decode)
            seen: list[object] = []
            try:
                seen.extend(decode_records(made))
            except KafkaError as refused:
                seen.append(str(refused))
        outcomes.append(seen)
    assert outcomes[0] == outcomes[1]


@given(st.binary(max_size=200), st.integers(1, 50), INT64, st.integers(1, 2**31 - 1), FLAGS, INT64, INT64)
def test_garbage_is_judged_alike(
    payload: bytes, size: int, base: int, count: int, flags: int, lowest: int, highest: int
) -> None:
    assert_alike(payload, size, base, count, flags, lowest, highest)
    assert_in_the_same_columns(payload, min(count, 1_000), base, base_offset=max(lowest, 0))


def test_the_corpus_is_judged_alike() -> None:
    faults = set()
    for case, _ in recorded():
        if len(case.batch) <= HEADER_SIZE or case.batch[22] & 7:
            continue
        header = read_header(case.batch)
        payload = case.batch[HEADER_SIZE:]
        for flags in (0, NEEDS_KEY):
            for size in (1, 7, 1000):
                rules = header.base_timestamp, max(header.records_count, 1), flags, 0, TIME_MS + 10
                found = assert_alike(payload, size, *rules)
                assert_in_the_same_columns(payload, max(header.records_count, 1), header.base_timestamp)
                faults.add(found if isinstance(found, int) else found[0])
    assert faults >= set(Fault) - {Fault.NONE}


@pytest.mark.parametrize("size", [1, 255, 256, 257, 300_000])
def test_a_record_larger_than_any_piece_is_looked_at_without_being_kept(size: int) -> None:
    payload = record(0, b"k" * 300_000, b"v" * 700_000) + record(1)
    for module in (pure, odradek_native):
        found = in_pieces(
            module, payload, size if module is odradek_native else max(size, 200), TIME_MS, 2, 0, 0, 2**62
        )
        assert found == TIME_MS


@pytest.mark.parametrize("module", [pure, odradek_native])
def test_errors_are_bounded(module: Any) -> None:
    payload = b"".join(record(index, None) for index in range(2_000))
    fault, _, errors = module.check(payload, TIME_MS, 2_000, NEEDS_KEY, 0, 2**62)
    assert (fault, errors) == (0, [(index, None) for index in range(pure.MAX_RECORD_ERRORS)])


@pytest.mark.parametrize("module", [pure, odradek_native])
def test_any_bytes_will_do(module: Any) -> None:
    payload = record(0)
    for given_bytes in (payload, bytearray(payload), memoryview(payload), memoryview(b"." + payload)[1:]):
        assert module.check(given_bytes, TIME_MS, 1, 0, 0, 2**62) == TIME_MS
    assert module.check(b"", TIME_MS, 1, 0, 0, 2**62) == (Fault.ENDS_EARLY, 0, [])


def test_what_is_no_row_of_bytes_is_refused() -> None:
    with pytest.raises((BufferError, TypeError)):
        odradek_native.check(memoryview(bytes(20))[::2], 0, 1, 0, 0, 1)
    with pytest.raises(TypeError):
        odradek_native.check("text", 0, 1, 0, 0, 1)
    with pytest.raises(OverflowError):
        odradek_native.check(b"", 2**63, 1, 0, 0, 1)
    done = odradek_native.Check(0, 1, 0, 0, 1)
    done.finish()
    with pytest.raises(ValueError, match="finished"):
        done.feed(b"")


def test_the_module_in_use_is_told() -> None:
    assert odradek_native.__version__ == native.WANTED_VERSION
    assert native.in_use() in (f"native module {odradek_native.__version__}", "no native module")
