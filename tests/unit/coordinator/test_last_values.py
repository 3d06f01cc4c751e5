"""As a dictionary, but never long at anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator import last_values
from odradek.coordinator.last_values import LastValues

KEYS = st.integers(0, 30).map(str).map(str.encode)


@given(st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=3)), max_size=120), st.integers(0, 3))
def test_it_is_a_dictionary(writes: list[tuple[bytes, bytes | None]], bits: int) -> None:
    expected: dict[bytes, bytes] = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(last_values, "_CHUNK_BITS", bits)
        patched.setattr(last_values, "_CHUNK", 1 << bits)
        values = LastValues()
        for key, content in writes:
            values.set(key, content)
            expected.pop(key, None)
            if content is not None:
                expected[key] = content
            assert (len(values), values.get(key)) == (len(expected), content)
        assert [entry for entries in values.take_out() for entry in entries] == list(expected.items())


def test_what_was_replaced_takes_no_room() -> None:
    values = LastValues()
    for number in range(100_000):
        values.set(b"%d" % (number % 3), b"%d" % number)
    assert sum(len(chunk) for chunk in values._chunks if chunk) <= 2 * last_values._CHUNK


def test_it_is_taken_out_and_let_go_of_bit_by_bit() -> None:
    values = LastValues()
    for number in range(20_000):
        values.set(b"%d" % number, b"")
    assert max(len(list(entries)) for entries in values.take_out()) == last_values._CHUNK
    assert not any(values._places)
    assert not any(values._chunks)
