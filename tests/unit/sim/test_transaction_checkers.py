"""Each checker of transactions by itself: a history that keeps its promise passes, one that breaks it is told."""

from __future__ import annotations

from odradek.sim.checkers import check, committed_read, fenced_silent, inputs_once, stable_offset, transactions_atomic
from odradek.sim.history import (
    Bounds,
    CommittedRead,
    Event,
    FencedHeard,
    FencedSent,
    History,
    InputConsumed,
    LoggedBatch,
    LogHeld,
    Partition,
    Read,
    StableSeen,
    TransactionEnded,
    TransactionEnding,
    TransactionSent,
    TransactionsSettled,
)

ONE, TWO = Partition("copies", 0), Partition("copies", 1)
INPUT = Partition("input", 0)


def history(*events: Event) -> History:
    told = History(())
    for event in events:
        told.add(event)
    return told


def sent(partition: Partition, number: int = 0, name: str = "t/1") -> TransactionSent:
    return TransactionSent(name, partition, record(number, name))


def record(number: int = 0, name: str = "t/1") -> bytes:
    return f"{name}|copy 0 {number}".encode()


def ended(*, committed: bool, told: bool = True, name: str = "t/1") -> list[Event]:
    ending: list[Event] = [TransactionEnding(name, committed)]
    return [*ending, TransactionEnded(name, committed)] if told else ending


def held(partition: Partition, *batches: LoggedBatch, start: int = 0) -> LogHeld:
    end = batches[-1].last_offset + 1 if batches else start
    return LogHeld(partition, start, end, end, batches)


def read(partition: Partition, *records: bytes, start: int = 0) -> CommittedRead:
    return CommittedRead("last", partition, tuple(enumerate(records, start)), final=True)


def copied(start: int = 0) -> list[Event]:
    return [sent(ONE), sent(TWO, 1), *ended(committed=True), held(ONE, start=start), held(TWO)]


def test_a_good_history_breaks_nothing() -> None:
    told = history(
        sent(ONE),
        sent(TWO, 1),
        StableSeen("node-1", ONE, 1, 0, 0, 1),
        *ended(committed=True),
        StableSeen("node-1", ONE, 1, 0, 2, 2),
        CommittedRead("reader", ONE, ((0, record()),)),
        held(ONE, LoggedBatch(0, 0, 7, 1, True), LoggedBatch(1, 1, 7, 2, True, "commit")),
        held(TWO, LoggedBatch(0, 0, 7, 1, True), LoggedBatch(1, 1, 7, 2, True, "commit")),
        read(ONE, record()),
        read(TWO, record(1)),
        TransactionsSettled((), 0.0),
    )
    assert check(told) == []


def test_a_transaction_that_was_committed_is_there_everywhere() -> None:
    told = history(*copied(), read(ONE, record()))
    assert transactions_atomic.check(told) == ["t/1 was committed, and b't/1|copy 0 1' of copies-1 is not there"]


def test_a_transaction_that_was_aborted_is_nowhere() -> None:
    told = history(sent(ONE), *ended(committed=False), held(ONE), read(ONE, record()))
    assert transactions_atomic.check(told) == ["t/1 was aborted, and b't/1|copy 0 0' of copies-0 is there"]


def test_a_transaction_of_unknown_outcome_is_there_as_a_whole_or_not_at_all() -> None:
    unknown = [sent(ONE), sent(TWO, 1), *ended(committed=True, told=False), held(ONE), held(TWO)]
    assert transactions_atomic.check(history(*unknown)) == []
    (broken,) = transactions_atomic.check(history(*unknown, read(TWO, record(1))))
    assert broken == "t/1 is there in part: b't/1|copy 0 1' of copies-1 is, and b't/1|copy 0 0' of copies-0 is not"


def test_what_was_deleted_need_not_be_there() -> None:
    assert transactions_atomic.check(history(*copied(start=5), read(TWO, record(1)))) == []


def test_nobody_reads_what_is_not_committed_yet() -> None:
    early = CommittedRead("reader", ONE, ((0, record()),))
    told = history(sent(ONE), early, *ended(committed=True), held(ONE), read(ONE, record()))
    (broken,) = committed_read.check(told)
    assert broken.endswith("whose transaction nobody had asked to commit by then")


def test_nobody_reads_what_was_aborted_or_never_written() -> None:
    told = history(sent(ONE), *ended(committed=False), held(ONE), read(ONE, record(), record(0, "nobody")))
    assert [each.partition(", ")[2] for each in committed_read.check(told)] == [
        "whose transaction was aborted",
        "which nobody wrote in a transaction",
    ]


def test_what_was_read_stays() -> None:
    first = CommittedRead("reader", ONE, ((0, record()),))
    told = history(sent(ONE), sent(ONE, 1), *ended(committed=True), first, held(ONE), read(ONE, record(1)))
    (broken,) = committed_read.check(told)
    assert broken == "reader read b't/1|copy 0 0' at 0 of copies-0, where in the end there is b't/1|copy 0 1'"


def test_every_input_is_copied_once() -> None:
    inputs: list[Event] = [
        Bounds(INPUT, 0, 3, asked_at=0, final=True),
        Read("final", INPUT, 0, (b"a", b"b", b"c"), final=True),
        InputConsumed("copiers", INPUT, 2),
    ]
    told = history(held(ONE), held(TWO), read(ONE, record(0)), read(TWO, record(1), record(1)), *inputs)
    assert inputs_once.check(told) == [
        "input-0 ends at 3, and was consumed up to 2",
        "input-0 at 1 was copied 2 times",
        "input-0 at 2 was copied 0 times",
    ]


def test_the_last_stable_offset_waits_for_the_marker_to_be_committed() -> None:
    log = held(ONE, LoggedBatch(0, 3, 7, 1, True), LoggedBatch(4, 4, 7, 2, True, "abort"))
    assert stable_offset.check(history(StableSeen("node-1", ONE, 1, 0, 5, 5), log)) == []
    (broken,) = stable_offset.check(history(StableSeen("node-1", ONE, 1, 0, 4, 4), log))
    assert broken.endswith("and a transaction is open there from 0 to 4")


def test_what_is_deleted_is_open_no_more() -> None:
    log = held(ONE, LoggedBatch(0, 3, 7, 1, True), LoggedBatch(4, 4, 7, 2, True, "abort"))
    assert stable_offset.check(history(StableSeen("node-1", ONE, 1, 4, 4, 4), log)) == []


def test_the_last_stable_offset_goes_back_only_with_another_leader() -> None:
    first = StableSeen("node-1", ONE, 1, 0, 5, 5)
    assert stable_offset.check(history(first, StableSeen("node-2", ONE, 2, 0, 4, 4))) == []
    assert stable_offset.check(history(first, StableSeen("node-1", ONE, 1, 0, 4, 5))) == [
        "copies-0 on node-1 was stable up to 5 and then up to 4"
    ]


def test_all_transactions_end_at_last() -> None:
    assert stable_offset.check(history(TransactionsSettled(("t is Ongoing",), 40.2))) == [
        "after 40 s in peace t is Ongoing"
    ]


def test_who_is_fenced_neither_writes_nor_ends_anything() -> None:
    told = history(
        FencedSent(ONE, b"fenced"),
        FencedHeard("producer 7", "end"),
        held(ONE, LoggedBatch(0, 0, 7, 2, True, "commit"), LoggedBatch(1, 1, 7, 1, True, "", (b"fenced",))),
    )
    assert fenced_silent.check(told) == [
        "producer 7 was fenced, and was told that this is done: end",
        "copies-0 has epoch 1 of producer 7 at 1, after epoch 2",
        "copies-0 has b'fenced' at 1, of a producer that was fenced",
    ]
