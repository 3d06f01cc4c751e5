"""Each checker by itself: a history that keeps its promise passes, one that breaks it is told."""

from __future__ import annotations

import pytest

from odradek.sim.checkers import (
    acknowledged_kept,
    check,
    ends_forward,
    last_values_kept,
    log_end,
    offsets_forward,
    producer_order,
    producer_state,
    replicas_same,
    same_record,
    seen_stays,
    watermark_forward,
)
from odradek.sim.history import (
    Acknowledged,
    Bounds,
    CommitAcknowledged,
    DiskFilled,
    Event,
    History,
    OffsetRead,
    Partition,
    PowerLost,
    ProcessCrashed,
    Read,
    Rejected,
    ReplicaHolds,
    Restarted,
    Sent,
    TableFollowed,
    TableHeld,
    TablePut,
    TrimSent,
    WatermarkSeen,
)

PLAIN = Partition("plain", 0)
DURABLE = Partition("durable", 0)


def history(*events: Event) -> History:
    told = History(("durable",))
    for event in events:
        told.add(event)
    return told


def record(number: int, producer: str = "p") -> bytes:
    return f"{producer}/{number}/rest".encode()


def acknowledged(number: int, offset: int, partition: Partition = PLAIN) -> Acknowledged:
    return Acknowledged("p", partition, offset, (record(number),), False)


def final(partition: Partition, *records: bytes, start: int = 0) -> list[Event]:
    return [
        Bounds(partition, start, start + len(records), asked_at=1_000, final=True),
        Read("final", partition, start, records, final=True),
    ]


def test_a_good_history_breaks_nothing() -> None:
    told = history(
        Sent("p", PLAIN, (record(0),), False),
        acknowledged(0, 0),
        Read("consumer", PLAIN, 0, (record(0),)),
        ProcessCrashed(),
        Sent("p", PLAIN, (record(1),), False),
        acknowledged(1, 1),
        *final(PLAIN, record(0), record(1)),
    )
    assert check(told) == []


def test_an_acknowledged_record_must_be_there() -> None:
    told = history(acknowledged(0, 0), acknowledged(1, 1), ProcessCrashed(), *final(PLAIN, record(0)))
    assert acknowledged_kept.check(told) == ["plain-0: b'p/1/rest' was acknowledged at 1 and is not there"]


def test_an_acknowledged_record_may_go_by_retention_or_with_the_power() -> None:
    assert acknowledged_kept.check(history(acknowledged(0, 0), *final(PLAIN, record(1), start=1))) == []
    assert acknowledged_kept.check(history(acknowledged(0, 0), PowerLost(), *final(PLAIN))) == []
    lost = history(acknowledged(0, 0, DURABLE), PowerLost(), *final(DURABLE))
    assert acknowledged_kept.check(lost) == ["durable-0: b'p/0/rest' was acknowledged at 0 and is not there"]


def test_a_record_acknowledged_without_an_offset_must_be_somewhere() -> None:
    told = history(acknowledged(0, -1), acknowledged(7, -1), *final(PLAIN, record(7)))
    assert acknowledged_kept.check(told) == ["plain-0: b'p/0/rest' was acknowledged and is nowhere"]


def test_an_offset_holds_one_record() -> None:
    changed = [Read("consumer", PLAIN, 0, (record(0),)), Read("consumer", PLAIN, 0, (record(1),))]
    assert same_record.check(history(*changed)) == ["plain-0: offset 0 was b'p/0/rest' and became b'p/1/rest'"]
    assert same_record.check(history(changed[0], PowerLost(), changed[1])) == []


def test_producers_are_in_order_and_once() -> None:
    assert producer_order.check(history(*final(PLAIN, record(0), record(5, "q"), record(1)))) == []
    assert producer_order.check(history(*final(PLAIN, record(1), record(0)))) == [
        "plain-0: record 0 of p stands at 1, behind 1"
    ]
    assert producer_order.check(history(*final(PLAIN, record(1), record(1)))) == [
        "plain-0: record 1 of p stands there twice, again at 1"
    ]


def test_what_was_seen_stays() -> None:
    seen = Read("consumer", PLAIN, 0, (record(0), record(1)))
    assert seen_stays.check(history(seen, ProcessCrashed(), *final(PLAIN, record(0)))) == [
        "plain-0: b'p/1/rest' was read at 1 and is not there"
    ]
    assert seen_stays.check(history(seen, PowerLost(), *final(PLAIN))) == []
    assert seen_stays.check(history(seen, *final(PLAIN, start=2))) == []


def test_a_log_does_not_end_before_what_was_acknowledged_when_somebody_asked() -> None:
    promise = [acknowledged(0, 0), acknowledged(1, 1)]
    assert log_end.check(history(*promise, Bounds(PLAIN, 0, 1, asked_at=1))) == []
    assert log_end.check(history(*promise, Bounds(PLAIN, 0, 1, asked_at=2))) == [
        "plain-0 ends at 1, 2 was acknowledged"
    ]
    assert log_end.check(history(*promise, PowerLost(), Bounds(PLAIN, 0, 1, asked_at=3))) == []
    assert log_end.check(history(Bounds(PLAIN, 3, 2, asked_at=0))) == ["plain-0 starts at 3, behind its end"]


def test_refusals_need_a_reason() -> None:
    first, second = (Sent("p", PLAIN, (record(number),), False) for number in (0, 1))
    refused = Rejected("p", PLAIN, "OUT_OF_ORDER_SEQUENCE_NUMBER", first.records)
    complaint = ["plain-0: p was refused without a reason: OUT_OF_ORDER_SEQUENCE_NUMBER"]
    assert producer_state.check(history(first, second, refused)) == complaint
    assert producer_state.check(history(first, second, Restarted(), refused)) == complaint
    assert producer_state.check(history(first, PowerLost(), refused)) == []
    assert producer_state.check(history(DiskFilled(), first, refused)) == complaint
    assert producer_state.check(history(DiskFilled(), first, second, refused)) == []


def test_a_watermark_goes_back_only_with_another_epoch_or_life() -> None:
    seen = [WatermarkSeen("node-1", 1, PLAIN, 3, 7), WatermarkSeen("node-1", 1, PLAIN, 4, 5)]
    assert watermark_forward.check(history(*seen, WatermarkSeen("node-1", 2, PLAIN, 4, 4))) == []
    assert watermark_forward.check(history(*seen, WatermarkSeen("node-1", 1, PLAIN, 4, 4))) == [
        "plain-0: the watermark went back from 5 to 4 on node-1, which leads epoch 4"
    ]


def test_nobody_is_told_an_earlier_end_than_before() -> None:
    told = Bounds(PLAIN, 0, 7, asked_at=0, observer="o")
    assert ends_forward.check(history(told, Bounds(PLAIN, 0, 6, asked_at=0, observer="o"))) == []
    assert ends_forward.check(history(told, Bounds(PLAIN, 0, 6, asked_at=1, observer="other"))) == []
    assert ends_forward.check(history(told, Bounds(PLAIN, 0, 6, asked_at=1, observer="o"))) == [
        "plain-0 was told to end at 7 and then at 6"
    ]


def test_replicas_hold_the_same_below_the_watermark() -> None:
    one = ReplicaHolds("node-1", PLAIN, 0, 2, ((0, b"a"), (1, b"b")))
    assert replicas_same.check(history(one, ReplicaHolds("node-2", PLAIN, 1, 2, ((1, b"b"), (2, b"x"))))) == []
    assert replicas_same.check(history(one, ReplicaHolds("node-2", PLAIN, 0, 2, ((0, b"a"), (1, b"x"))))) == [
        "plain-0 is not the same on node-1 and node-2 below 2"
    ]


def test_a_group_goes_back_only_where_records_after_its_offset_were_deleted() -> None:
    def committed(offset: int) -> CommitAcknowledged:
        return CommitAcknowledged("g", "m", 1, PLAIN, offset, f"m/{offset}")

    def told(offset: int) -> OffsetRead:
        return OffsetRead("g", PLAIN, offset, f"m/{offset}", asked_at=1_000)

    assert offsets_forward.check(history(committed(5), committed(130), told(130))) == []
    back = ["g: plain-0 went back from 130 to 97"]
    assert offsets_forward.check(history(committed(130), committed(97), told(97))) == back
    assert offsets_forward.check(history(committed(130), TrimSent(PLAIN, 1, 130), committed(97), told(97))) == back
    overtaken = history(committed(130), TrimSent(PLAIN, 1, 145), committed(97), told(97))
    assert offsets_forward.check(overtaken) == []
    assert offsets_forward.check(history(committed(130), TrimSent(PLAIN, 1, 145), told(97))) == back


PUT = TablePut(PLAIN, 3, ((b"a", b"1"), (b"b", b"1"), (b"c", None)))


@pytest.mark.parametrize(
    ("records", "broken"),
    [
        (((3, b"a", b"1"), (4, b"b", b"1"), (5, b"c", None)), None),
        (((3, b"a", b"1"), (4, b"b", b"1")), None),
        (((4, b"b", b"1"), (6, b"a", b"later")), None),
        (((4, b"b", b"1"),), "the last value of b'a', acknowledged at 3, is not there"),
        (
            ((1, b"c", b"0"), (3, b"a", b"1"), (4, b"b", b"1")),
            "the last value of b'c', acknowledged at 5, is not there",
        ),
        (((3, b"a", b"1"), (4, b"a", b"1")), "offset 4 was acknowledged as b'b' and is b'a'"),
        (((4, b"b", b"1"), (3, b"a", b"1")), "offset 3 comes after 4"),
    ],
)
def test_last_values_are_kept(records: tuple[tuple[int, bytes, bytes | None], ...], broken: str | None) -> None:
    found = last_values_kept.check(history(PUT, TableHeld("node-1", PLAIN, records)))
    assert (f"{PLAIN} on node-1: {broken}" in found) if broken else found == []


def test_who_follows_a_table_makes_of_it_what_it_is() -> None:
    held = TableHeld("node-1", PLAIN, ((3, b"a", b"1"), (4, b"b", b"1"), (5, b"b", None)))
    assert last_values_kept.check(history(held, TableFollowed("reader", PLAIN, ((b"a", b"1"),)))) == []
    assert last_values_kept.check(history(held, TableFollowed("reader", PLAIN, ((b"a", b"1"), (b"b", b"1"))))) == [
        f"{PLAIN} is not the same for node-1 and reader: b'b'"
    ]
    other = TableHeld("node-2", PLAIN, ((3, b"a", b"1"), (4, b"b", b"1")))
    assert last_values_kept.check(history(held, other)) == [f"{PLAIN} is not the same for node-1 and node-2: b'b'"]
