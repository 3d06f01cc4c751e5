"""The newest batches of a log: found by offset, never more than the log holds, and bounded."""

from __future__ import annotations

from odradek.protocol.records.batch import BatchHeader, build_batch, read_header
from odradek.protocol.records.record import Record
from odradek.server.quorum.recent_batches import RecentBatches


def batch(base_offset: int, count: int = 2) -> tuple[BatchHeader, memoryview]:
    content = build_batch([Record(value=b"v")] * count, base_offset=base_offset)
    return read_header(content), memoryview(content)


def spans(recent: RecentBatches, start_offset: int, end_offset: int) -> list[tuple[int, int]] | None:
    found = recent.between(start_offset, end_offset)
    return None if found is None else [(header.base_offset, header.last_offset) for header, _ in found]


def test_batches_are_found_from_the_one_that_holds_an_offset() -> None:
    recent = RecentBatches()
    recent.appended([batch(10), batch(12)], start_offset=10, end_offset=14)
    recent.appended([batch(14)], start_offset=14, end_offset=16)
    assert spans(recent, 10, 16) == [(10, 11), (12, 13), (14, 15)]
    assert spans(recent, 13, 16) == [(12, 13), (14, 15)]
    assert spans(recent, 12, 15) == [(12, 13)]
    assert spans(recent, 12, 12) == []


def test_what_is_not_here_is_not_guessed() -> None:
    recent = RecentBatches()
    assert spans(recent, 0, 10) is None
    recent.appended([batch(10)], start_offset=10, end_offset=12)
    assert spans(recent, 9, 12) is None
    assert spans(recent, 12, 14) is None
    recent.clear()
    assert spans(recent, 10, 12) is None


def test_a_log_that_goes_on_elsewhere_begins_anew() -> None:
    recent = RecentBatches()
    recent.appended([batch(10)], start_offset=10, end_offset=12)
    recent.appended([batch(20)], start_offset=20, end_offset=22)
    assert spans(recent, 10, 22) is None
    assert spans(recent, 20, 22) == [(20, 21)]


def test_what_the_log_did_not_take_is_not_kept() -> None:
    recent = RecentBatches()
    recent.appended([batch(10), batch(12)], start_offset=10, end_offset=12)
    assert spans(recent, 10, 12) is None


def test_the_older_half_goes_when_there_is_too_much() -> None:
    recent = RecentBatches(most_bytes=3 * batch(0)[0].size)
    for offset in range(0, 8, 2):
        recent.appended([batch(offset)], start_offset=offset, end_offset=offset + 2)
    assert spans(recent, 0, 8) is None
    assert spans(recent, 4, 8) == [(4, 5), (6, 7)]
