"""The three indexes: golden bytes, lookups against a plain list, and content that cannot be one."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.storage.worlds import Machine

from odradek.storage import offset_index, time_index
from odradek.storage.offset_index import OffsetIndex, SealedOffsetIndex
from odradek.storage.time_index import SealedTimeIndex, TimeIndex
from odradek.storage.txn_index import AbortedTxn, TxnIndex

BASE = 1 << 40
ASCENDING = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=1200).map(
    lambda steps: (
        [(sum(step for step, _ in steps[: n + 1]), sum(step for _, step in steps[: n + 1])) for n in range(len(steps))]
        if len(steps) <= 60
        else _running(steps)
    )
)


def _running(steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    entries, offset, position = [], 0, 0
    for offset_step, position_step in steps:
        offset, position = offset + offset_step, position + position_step
        entries.append((offset, position))
    return entries


def _offset_index(base_offset: int, entries: list[tuple[int, int]]) -> OffsetIndex:
    index = OffsetIndex(base_offset)
    for relative_offset, position in entries:
        index.offsets.append(relative_offset)
        index.positions.append(position)
    return index


def test_golden_bytes() -> None:
    offsets = _offset_index(100, [(7, 4200), (20, 9000)])
    assert offsets.to_bytes() == bytes.fromhex("00000007 00001068 00000014 00002328")
    times = TimeIndex(100)
    assert times.maybe_append(1_700_000_000_000, 107)
    assert not times.maybe_append(1_700_000_000_000, 120)
    assert times.maybe_append(1_700_000_000_001, 121)
    assert times.to_bytes() == bytes.fromhex("0000018bcfe56800 00000007 0000018bcfe56801 00000015")


@given(ASCENDING, st.integers(-1, 60_000), st.integers(-1, 6_000_000))
def test_offset_lookups(entries: list[tuple[int, int]], offset: int, position: int) -> None:
    index = _offset_index(BASE, entries)
    assert offset_index.entries_are_sound(index.to_bytes(), log_size=1 << 31)
    disk = Machine().disk
    disk.write_file("/data/0.index", index.to_bytes())
    sealed = SealedOffsetIndex(disk, "/data/0.index", BASE)
    before = max((at for entry, at in entries if entry <= offset), default=0)
    boundary = max((at for _, at in entries if at <= position), default=0)
    for found in (index, sealed, OffsetIndex.from_bytes(BASE, index.to_bytes())):
        for _ in range(2):  # The second time from the block that was kept.
            assert found.position_before(BASE + offset) == before
            assert found.boundary_before(position) == boundary


@given(ASCENDING, st.integers(-1, 60_000))
def test_time_lookups(entries: list[tuple[int, int]], timestamp: int) -> None:
    index = TimeIndex(BASE)
    for entry_timestamp, entry_offset in entries:
        index.maybe_append(entry_timestamp, BASE + entry_offset)
    assert time_index.entries_are_sound(index.to_bytes())
    disk = Machine().disk
    disk.write_file("/data/0.timeindex", index.to_bytes())
    sealed = SealedTimeIndex(disk, "/data/0.timeindex", BASE)
    expected = BASE + max((offset for stamp, offset in entries if stamp < timestamp), default=0)
    last = (entries[-1][0], BASE + entries[-1][1]) if entries else None
    for found in (index, sealed, TimeIndex.from_bytes(BASE, index.to_bytes())):
        assert found.offset_before(timestamp) == expected
        assert found.last() == last


def test_sealed_indexes_follow_their_file() -> None:
    disk = Machine().disk
    disk.write_file("/data/a", struct.pack(">ii", 5, 50))
    sealed = SealedOffsetIndex(disk, "/data/a", 0)
    assert sealed.position_before(5) == 50
    disk.rename("/data/a", "/data/b")
    sealed.moved("/data/b")
    assert sealed.position_before(5) == 50


@pytest.mark.parametrize(
    ("entries", "sound"),
    [
        ([], True),
        ([(1, 10), (2, 20)], True),
        ([(1, 10), (1, 20)], False),
        ([(2, 10), (1, 20)], False),
        ([(1, 20), (2, 20)], False),
        ([(1, 20), (2, 10)], False),
        ([(-1, 10)], False),
        ([(1, -10)], False),
        ([(1, 10), (2, 100)], False),
    ],
)
def test_what_can_be_an_offset_index(entries: list[tuple[int, int]], sound: bool) -> None:
    data = b"".join(struct.pack(">ii", *entry) for entry in entries)
    assert offset_index.entries_are_sound(data, log_size=100) == sound
    assert not offset_index.entries_are_sound(data + b"\0", log_size=100)


@pytest.mark.parametrize(
    ("entries", "sound"),
    [
        ([], True),
        ([(10, 0), (20, 0), (30, 7)], True),
        ([(10, 1), (10, 2)], False),
        ([(10, 2), (20, 1)], False),
        ([(10, -1)], False),
    ],
)
def test_what_can_be_a_time_index(entries: list[tuple[int, int]], sound: bool) -> None:
    data = b"".join(struct.pack(">qi", *entry) for entry in entries)
    assert time_index.entries_are_sound(data) == sound
    assert not time_index.entries_are_sound(data + b"\0")


def test_the_transaction_index() -> None:
    disk = Machine().disk
    index = TxnIndex(disk, "/data/0.txnindex")
    assert index.between(0, 100) == ([], False)
    assert not disk.exists("/data/0.txnindex"), "most segments have no aborted transaction, and so no file"
    first, second = AbortedTxn(1, 10, 20, 10), AbortedTxn(2, 15, 30, 31)
    index.append(first)
    index.append(second)
    assert disk.read_file("/data/0.txnindex")[:34] == bytes.fromhex(
        "0000 0000000000000001 000000000000000a 0000000000000014 000000000000000a"
    )
    again = TxnIndex(disk, "/data/0.txnindex")
    assert again.all() == [first, second]
    assert again.between(21, 25) == ([second], True)
    assert again.between(0, 12) == ([first], True)
    assert again.between(31, 40) == ([], False)
    assert again.is_sound(base_offset=0)
    again.truncate(end_offset=30)
    assert TxnIndex(disk, "/data/0.txnindex").all() == [first]
    assert not again.is_sound(base_offset=21)
    disk.write_file("/data/0.txnindex", bytes(33))
    assert not again.is_sound(base_offset=0)
    again.clear()
    assert not disk.exists("/data/0.txnindex")
