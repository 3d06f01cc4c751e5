"""Each request of a transactional producer in each state, as Kafka 4.3 answers it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.coordinator.transactions import FIRST_PRODUCER_ID, ID, TIMEOUT_MS, Transactions

from odradek.coordinator.transaction.settings import TransactionSettings
from odradek.coordinator.transaction.shard import MAX_RECORDS_PER_SWEEP
from odradek.coordinator.transaction.state import LAST_USABLE_EPOCH, MAX_EPOCH, TRANSITIONS, State
from odradek.decisions import Ticket
from odradek.ids import ProducerEpoch
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_transactions import TransactionState
from odradek.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from odradek.values import replace

A, B, C = ("t", 0), ("t", 1), ("u", 0)
NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
STRANGER = ErrorCode.INVALID_PRODUCER_ID_MAPPING
WRONG_STATE = ErrorCode.INVALID_TXN_STATE
NOBODY = (-1, -1)


def ongoing(version: int = 2) -> tuple[Transactions, tuple[int, int]]:
    tried = Transactions(version)
    producer = tried.producer()
    assert tried.add(producer, A, B) is NONE
    return tried, producer


def exhausted(version: int = 2) -> tuple[Transactions, tuple[int, int]]:
    """Ongoing in the last epoch that a client may have."""
    tried, (producer_id, _) = ongoing(version)
    known = tried.known()
    tried.shard.transactions[ID] = replace(known, producer_epoch=ProducerEpoch(LAST_USABLE_EPOCH))
    return tried, (producer_id, LAST_USABLE_EPOCH)


# A whole transaction.


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_once_all_partitions_know_and_the_epoch_has_risen(commit: bool) -> None:
    tried, (producer_id, epoch) = ongoing()
    assert tried.state() == "Ongoing"
    assert tried.end((producer_id, epoch), commit=commit) == (NONE, producer_id, epoch + 1)
    assert tried.state() == ("PrepareCommit" if commit else "PrepareAbort")
    (markers,) = tried.markers
    assert markers.transaction.is_committing is commit
    assert markers.transaction.partitions == (A, B)
    assert (markers.transaction.producer_id, markers.transaction.producer_epoch) == (producer_id, epoch + 1)
    tried.mark()
    assert tried.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert tried.known().partitions == ()
    assert tried.add((producer_id, epoch + 1), C) is NONE
    assert tried.known().partitions == (C,)


@pytest.mark.parametrize("version", [0, 1])
def test_the_epoch_of_an_older_client_stays_and_its_answer_names_none(version: int) -> None:
    tried, producer = ongoing(version)
    assert tried.end(producer, commit=True) == (NONE, *NOBODY)
    tried.mark()
    assert (tried.known().producer_id, tried.known().producer_epoch) == producer
    assert tried.add(producer, C) is NONE


def test_records_hold_what_the_transaction_version_allows() -> None:
    for version, value_version in ((0, 0), (1, 1), (2, 1)):
        tried, producer = ongoing(version)
        tried.end(producer, commit=True)
        record = tried.log[-1]
        assert record.value_version == value_version
        assert record.value is not None
        assert record.value.client_transaction_version == (2 if version == 2 else 0)


# InitProducerId.


def test_ids_begin_in_epoch_zero_and_whoever_comes_next_fences_the_one_before() -> None:
    tried = Transactions()
    assert tried.init() == (NONE, FIRST_PRODUCER_ID, 0)
    assert tried.init() == (NONE, FIRST_PRODUCER_ID, 1)
    assert tried.add((FIRST_PRODUCER_ID, 0), A) is FENCED
    assert tried.init("other") == (NONE, FIRST_PRODUCER_ID + 1, 0)


@pytest.mark.parametrize("transactional_id", ["", "x" * (1 << 15), "ü" * (1 << 14)])
def test_an_id_that_no_key_holds_is_refused(transactional_id: str) -> None:
    assert Transactions().init(transactional_id) == (ErrorCode.INVALID_REQUEST, *NOBODY)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001, (1 << 31) - 1])
def test_a_timeout_that_is_none_or_too_long_is_refused(timeout_ms: int) -> None:
    tried = Transactions()
    assert tried.init(timeout_ms=timeout_ms) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, *NOBODY)
    assert tried.init(timeout_ms=900_000)[0] is NONE
    assert tried.known().timeout_ms == 900_000


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_open_transaction_is_aborted_before_the_next_producer_gets_its_epoch(version: int) -> None:
    tried, (producer_id, epoch) = ongoing(version)
    assert tried.init() == (CONCURRENT, *NOBODY)
    assert tried.state() == "PrepareAbort"
    assert tried.markers[0].transaction.producer_epoch == epoch + 1
    assert tried.init() == (CONCURRENT, *NOBODY)
    assert len(tried.markers) == 1
    tried.mark()
    assert tried.init() == (NONE, producer_id, epoch + 2)
    assert tried.add((producer_id, epoch), A) is FENCED
    assert tried.end((producer_id, epoch), commit=True)[0] is FENCED


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_under_way_is_waited_for(commit: bool) -> None:
    tried, producer = ongoing()
    tried.end(producer, commit=commit)
    assert tried.init() == (CONCURRENT, *NOBODY)


def test_a_producer_that_goes_on_keeps_its_id_and_may_ask_again() -> None:
    tried = Transactions()
    producer = tried.producer()
    assert tried.init(expected=producer) == (NONE, producer[0], 1)
    assert tried.init(expected=producer) == (NONE, producer[0], 1), "it has missed the answer"
    assert tried.init(expected=(producer[0], 1)) == (NONE, producer[0], 2)
    assert tried.init(expected=producer) == (FENCED, *NOBODY)
    assert tried.init(expected=(producer[0] + 7, 2)) == (FENCED, *NOBODY)


def test_a_producer_that_goes_on_is_fenced_once_another_has_begun() -> None:
    tried = Transactions()
    producer = tried.producer()
    tried.init(expected=producer)
    assert tried.init() == (NONE, producer[0], 2)
    assert tried.init(expected=(producer[0], 1)) == (FENCED, *NOBODY)


def test_a_producer_whose_id_is_forgotten_goes_on_with_another_one() -> None:
    tried = Transactions()
    assert tried.init(expected=(77, 5)) == (NONE, FIRST_PRODUCER_ID, 0)


@pytest.mark.parametrize("goes_on", [True, False])
def test_used_up_epochs_are_followed_by_another_id(goes_on: bool) -> None:
    tried, producer = exhausted(version=1)
    tried.end(producer, commit=True)
    tried.mark()
    expected = producer if goes_on else NOBODY
    assert tried.init(expected=expected) == (NONE, FIRST_PRODUCER_ID + 1, 0)
    again = tried.init(expected=expected)
    if goes_on:
        assert again == (NONE, FIRST_PRODUCER_ID + 1, 0), "it has missed the answer"
    else:
        assert again == (NONE, FIRST_PRODUCER_ID + 1, 1)


def test_the_last_epoch_can_be_asked_for_again() -> None:
    tried = Transactions()
    producer_id, _ = tried.producer()
    tried.shard.transactions[ID] = replace(tried.known(), producer_epoch=ProducerEpoch(LAST_USABLE_EPOCH - 1))
    before = (producer_id, LAST_USABLE_EPOCH - 1)
    assert tried.init(expected=before) == (NONE, producer_id, LAST_USABLE_EPOCH)
    assert tried.init(expected=before) == (NONE, producer_id, LAST_USABLE_EPOCH)
    assert tried.init(expected=(producer_id, 5)) == (FENCED, *NOBODY)


@pytest.mark.parametrize("version", [1, 2])
def test_fencing_the_last_epoch_leads_to_another_id(version: int) -> None:
    tried, (producer_id, _) = exhausted(version)
    assert tried.init()[0] is CONCURRENT
    assert tried.markers[0].transaction.producer_id == producer_id
    assert tried.markers[0].transaction.producer_epoch == MAX_EPOCH
    tried.mark()
    code, next_id, epoch = tried.init()
    assert (code, next_id) == (NONE, FIRST_PRODUCER_ID + 1)
    assert epoch == (1 if version == 2 else 0)


# AddPartitionsToTxn.


def test_partitions_come_in_once_and_the_clock_starts_with_the_first() -> None:
    tried = Transactions()
    producer = tried.producer()
    tried.ms = 5
    assert tried.add(producer, A) is NONE
    tried.ms = 9
    written = len(tried.log)
    assert tried.add(producer, A) is NONE
    assert len(tried.log) == written, "nothing new, nothing written"
    assert tried.add(producer, A, C) is NONE
    assert tried.known().partitions == (A, C)
    assert (tried.known().start_ms, tried.known().last_update_ms) == (5, 9)


def test_strangers_add_nothing() -> None:
    tried, (producer_id, epoch) = ongoing()
    assert tried.add((producer_id, epoch), A, transactional_id="nobody") is STRANGER
    assert tried.add((producer_id + 1, epoch), A) is STRANGER
    assert tried.add((producer_id, epoch + 1), A) is FENCED
    assert tried.add((producer_id, epoch), A, transactional_id="") is ErrorCode.INVALID_REQUEST
    tried.end((producer_id, epoch), commit=True)
    assert tried.add((producer_id, epoch + 1), C) is CONCURRENT


def test_a_partition_is_verified_if_it_is_part_of_the_transaction() -> None:
    tried, (producer_id, epoch) = ongoing()
    producer = (producer_id, epoch)
    assert tried.verify(producer, A, C) == {A: NONE, C: ErrorCode.TRANSACTION_ABORTABLE}
    assert tried.verify((producer_id, epoch - 1), A) == {A: FENCED}
    assert tried.verify((producer_id + 1, epoch), A) == {A: STRANGER}
    assert tried.verify(producer, A, transactional_id="nobody") == {A: STRANGER}
    assert tried.verify(producer, A, transactional_id="") == {A: ErrorCode.INVALID_REQUEST}
    tried.end(producer, commit=True)
    assert tried.verify((producer_id, epoch + 1), A) == {A: CONCURRENT}
    tried.mark()
    assert tried.verify((producer_id, epoch + 1), A) == {A: ErrorCode.TRANSACTION_ABORTABLE}


# EndTxn.


def in_state(state: str, version: int) -> tuple[Transactions, tuple[int, int]]:
    """Where a transaction has gone that far, and the producer that the coordinator knows now."""
    tried, producer = ongoing(version)
    if state == "Empty":
        tried = Transactions(version)
        producer = tried.producer()
    elif state != "Ongoing":
        tried.end(producer, commit=state.endswith("Commit"))
        if state.startswith("Complete"):
            tried.mark()
    assert tried.state() == state
    return tried, (tried.known().producer_id, tried.known().producer_epoch)


RISEN = "an epoch more"


@pytest.mark.parametrize(
    ("state", "commit", "is_retry", "expected"),
    [
        ("Empty", False, True, FENCED),
        ("Empty", False, False, RISEN),
        ("Empty", True, True, FENCED),
        ("Empty", True, False, WRONG_STATE),
        ("Ongoing", True, True, FENCED),
        ("Ongoing", True, False, RISEN),
        ("Ongoing", False, True, FENCED),
        ("Ongoing", False, False, RISEN),
        ("PrepareCommit", True, True, CONCURRENT),
        ("PrepareCommit", False, True, WRONG_STATE),
        ("PrepareCommit", True, False, FENCED),
        ("PrepareCommit", False, False, FENCED),
        ("PrepareAbort", False, True, CONCURRENT),
        ("PrepareAbort", True, True, WRONG_STATE),
        ("PrepareAbort", False, False, FENCED),
        ("PrepareAbort", True, False, FENCED),
        ("CompleteCommit", True, True, NONE),
        ("CompleteCommit", False, True, WRONG_STATE),
        ("CompleteCommit", True, False, WRONG_STATE),
        ("CompleteCommit", False, False, RISEN),
        ("CompleteAbort", False, True, NONE),
        ("CompleteAbort", True, True, WRONG_STATE),
        ("CompleteAbort", False, False, RISEN),
        ("CompleteAbort", True, False, WRONG_STATE),
    ],
)
def test_an_end_where_epochs_rise(state: str, commit: bool, is_retry: bool, expected: ErrorCode | str) -> None:
    tried, (producer_id, epoch) = in_state(state, version=2)
    code, answered_id, answered_epoch = tried.end((producer_id, epoch - is_retry), commit=commit)
    if expected == RISEN:
        assert (code, answered_id, answered_epoch) == (NONE, producer_id, epoch + 1)
        tried.mark()
        assert tried.state() == ("CompleteCommit" if commit else "CompleteAbort")
    elif expected is NONE:
        assert (code, answered_id, answered_epoch) == (NONE, producer_id, epoch)
        assert tried.state() == state
    else:
        assert (code, answered_id, answered_epoch) == (expected, *NOBODY)
        assert tried.state() == state


@pytest.mark.parametrize(
    ("state", "commit", "expected"),
    [
        ("Empty", False, WRONG_STATE),
        ("Empty", True, WRONG_STATE),
        ("PrepareCommit", True, CONCURRENT),
        ("PrepareCommit", False, WRONG_STATE),
        ("PrepareAbort", False, CONCURRENT),
        ("PrepareAbort", True, WRONG_STATE),
        ("CompleteCommit", True, NONE),
        ("CompleteCommit", False, WRONG_STATE),
        ("CompleteAbort", False, NONE),
        ("CompleteAbort", True, WRONG_STATE),
    ],
)
def test_an_end_where_epochs_stay(state: str, commit: bool, expected: ErrorCode) -> None:
    tried, (producer_id, epoch) = in_state(state, version=1)
    assert tried.end((producer_id, epoch), commit=commit) == (expected, *NOBODY)
    assert tried.end((producer_id, epoch - 1), commit=commit)[0] is FENCED
    assert tried.end((producer_id, epoch + 1), commit=commit)[0] is FENCED
    assert tried.state() == state


@pytest.mark.parametrize("version", [1, 2])
def test_strangers_end_nothing(version: int) -> None:
    tried, (producer_id, epoch) = ongoing(version)
    assert tried.end((producer_id + 1, epoch), commit=True)[0] is STRANGER
    assert tried.end((producer_id, epoch), commit=True, transactional_id="nobody")[0] is STRANGER
    assert tried.end((producer_id, epoch), commit=True, transactional_id="")[0] is ErrorCode.INVALID_REQUEST
    assert tried.state() == "Ongoing"


@pytest.mark.parametrize(("version", "expected"), [(1, "PrepareCommit"), (2, "Ongoing")])
def test_a_late_end_ends_the_next_transaction_of_clients_whose_epoch_stays_alone(version: int, expected: str) -> None:
    tried, producer = ongoing(version)
    tried.end(producer, commit=True)
    tried.mark()
    tried.add((tried.known().producer_id, tried.known().producer_epoch), C)
    code = tried.end(producer, commit=True)[0]
    assert code is (NONE if version == 1 else FENCED)
    assert tried.state() == expected


def test_the_last_epoch_ends_with_another_id_which_a_retry_is_told_too() -> None:
    tried, producer = exhausted()
    next_producer = (FIRST_PRODUCER_ID + 1, 0)
    assert tried.end(producer, commit=True) == (NONE, *next_producer)
    assert tried.markers[0].transaction.producer_id == producer[0]
    assert tried.markers[0].transaction.producer_epoch == MAX_EPOCH
    assert tried.end(producer, commit=True)[0] is CONCURRENT
    tried.mark()
    assert tried.end(producer, commit=True) == (NONE, *next_producer)
    assert tried.end(producer, commit=False)[0] is WRONG_STATE
    assert tried.init(expected=producer)[:2] == (NONE, FIRST_PRODUCER_ID + 1)
    assert tried.add(producer, A) is STRANGER


def test_the_next_id_outlives_its_coordinator() -> None:
    tried, producer = exhausted()
    tried.end(producer, commit=True)
    tried.reload()
    assert tried.state() == "PrepareCommit"
    tried.mark()
    assert (tried.known().producer_id, tried.known().producer_epoch) == (FIRST_PRODUCER_ID + 1, 0)
    tried.reload()
    assert tried.end(producer, commit=True) == (NONE, FIRST_PRODUCER_ID + 1, 0)


def test_an_abort_of_nothing_has_no_partition_to_tell() -> None:
    tried = Transactions()
    producer_id, epoch = tried.producer()
    tried.ms = 7
    assert tried.end((producer_id, epoch), commit=False) == (NONE, producer_id, epoch + 1)
    assert tried.markers[0].transaction.partitions == ()
    assert tried.known().start_ms == 7
    tried.mark()
    assert tried.state() == "CompleteAbort"


# Time.


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(version: int) -> None:
    tried, (producer_id, epoch) = ongoing(version)
    tried.pass_time(TIMEOUT_MS)
    assert tried.state() == "Ongoing"
    tried.pass_time(tried.settings.abort_interval_ms)
    assert tried.state() == "PrepareAbort"
    tried.mark()
    assert tried.known().producer_epoch == epoch + 1
    assert tried.add((producer_id, epoch), C) is FENCED
    code = tried.end((producer_id, epoch), commit=True)[0]
    assert code is (FENCED if version == 1 else WRONG_STATE)


def test_a_producer_that_aborts_what_was_aborted_meanwhile_learns_its_epoch() -> None:
    tried, (producer_id, epoch) = ongoing()
    tried.pass_time(TIMEOUT_MS + tried.settings.abort_interval_ms)
    tried.mark()
    assert tried.end((producer_id, epoch), commit=False) == (NONE, producer_id, epoch + 1)


def test_whoever_takes_over_counts_the_time_from_the_first_partition_on() -> None:
    tried, _ = ongoing()
    tried.pass_time(TIMEOUT_MS)
    tried.reload()
    tried.pass_time(tried.settings.abort_interval_ms)
    assert tried.state() == "PrepareAbort"


def test_many_are_aborted_in_batches_that_the_log_takes() -> None:
    tried = Transactions()
    names = [f"p{number}" for number in range(MAX_RECORDS_PER_SWEEP + 1)]
    for name in names:
        tried.add(tried.producer(name), A, transactional_id=name)
    tried.ms = TIMEOUT_MS + tried.settings.abort_interval_ms
    first = tried.shard.expire(tried.now)
    assert len(first.records) == MAX_RECORDS_PER_SWEEP
    tried.carry_out(first)
    tried.expire()
    assert {tried.state(name) for name in names} == {"PrepareAbort"}


def test_one_with_the_names_of_a_thousand_topics_fills_a_batch() -> None:
    tried = Transactions()
    wide = [(f"{number:0249}", 0) for number in range(2_100)]
    for name in ("p", "q"):
        tried.add(tried.producer(name), *wide, transactional_id=name)
    tried.ms = TIMEOUT_MS + tried.settings.abort_interval_ms
    assert len(tried.shard.expire(tried.now).records) == 1


def test_ids_that_nobody_uses_are_forgotten_but_for_those_with_a_transaction() -> None:
    day_ms = 86_400_000
    tried = Transactions(settings=TransactionSettings(id_expiration_ms=day_ms, max_timeout_ms=10 * day_ms))
    tried.producer("empty")
    tried.add(tried.init("open", timeout_ms=10 * day_ms)[1:], A, transactional_id="open")
    tried.end(tried.producer("aborted"), commit=False, transactional_id="aborted")
    tried.mark()
    tried.pass_time(day_ms - tried.settings.expiration_interval_ms)
    assert set(tried.shard.transactions) == {"empty", "open", "aborted"}
    tried.producer("fresh")
    tried.pass_time(2 * tried.settings.expiration_interval_ms)
    assert set(tried.shard.transactions) == {"open", "fresh"}
    assert [record.key.transactional_id for record in tried.log if record.value is None] == ["empty", "aborted"]
    tried.reload()
    assert set(tried.shard.transactions) == {"open", "fresh"}


def test_a_coordinator_of_nothing_sleeps() -> None:
    tried = Transactions()
    assert tried.shard.next_deadline_ms is None


# A log that refuses.


def test_a_refused_request_has_changed_nothing() -> None:
    tried, producer = ongoing()
    tried.init("idle")
    before = dict(tried.shard.transactions)
    tried.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    for attempt in (
        lambda: tried.init("idle"),
        lambda: tried.init(),
        lambda: tried.add(producer, C),
        lambda: tried.end(producer, commit=True),
        lambda: tried.init("new"),
    ):
        with pytest.raises(ConnectionError):
            attempt()
    assert tried.shard.transactions == before
    assert not tried.markers
    tried.refuses = None
    assert tried.end(producer, commit=True)[0] is NONE


def test_a_refused_epoch_is_not_asked_for_again_in_vain() -> None:
    tried = Transactions()
    producer = tried.producer()
    tried.init(expected=producer)
    tried.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(ConnectionError):
        tried.init()
    tried.refuses = None
    assert tried.init(expected=producer) == (NONE, producer[0], 1)


def test_what_is_due_by_itself_is_done_once_the_log_takes_it() -> None:
    tried, _ = ongoing()
    tried.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    tried.pass_time(TIMEOUT_MS + 2 * tried.settings.abort_interval_ms)
    assert tried.state() == "Ongoing"
    tried.refuses = None
    tried.pass_time(1_000)
    assert tried.state() == "PrepareAbort"
    tried.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert tried.shard.refused_ends == 0
    tried.mark()
    assert tried.state() == "PrepareAbort"
    tried.pass_time(10_000)
    assert tried.shard.refused_ends == 1
    tried.refuses = None
    tried.pass_time(1_000)
    assert tried.state() == "CompleteAbort"
    assert tried.shard.refused_ends == 0


# Somebody else takes over.


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_was_decided_is_carried_out_by_whoever_takes_over(commit: bool) -> None:
    tried, producer = ongoing()
    tried.end(producer, commit=commit)
    before = tried.markers[0]
    tried.reload()
    (markers,) = tried.markers
    assert markers.transaction.is_committing is commit
    assert markers.transaction.partitions == before.transaction.partitions
    assert markers.transaction.producer_epoch == before.transaction.producer_epoch
    tried.mark()
    tried.reload()
    assert not tried.markers
    assert tried.state() == ("CompleteCommit" if commit else "CompleteAbort")


def test_markers_that_are_told_twice_complete_once() -> None:
    tried, producer = ongoing()
    tried.end(producer, commit=True)
    (markers,) = tried.markers
    tried.mark()
    written = len(tried.log)
    tried.carry_out(tried.shard.marked(markers.transaction, tried.now))
    assert len(tried.log) == written
    tried.add((producer[0], producer[1] + 1), C)
    tried.end((producer[0], producer[1] + 1), commit=False)
    tried.carry_out(tried.shard.marked(markers.transaction, tried.now))
    assert tried.state() == "PrepareAbort", "those were not its own"


def test_the_transaction_version_may_rise_while_a_transaction_is_open() -> None:
    tried, producer = ongoing(version=0)
    tried.raise_version(2)
    assert tried.end(producer, commit=True, client_version=0) == (NONE, *NOBODY)
    tried.mark()
    assert tried.known().producer_epoch == producer[1]
    assert tried.add(producer, A, client_version=2) is NONE
    assert tried.end(producer, commit=True, client_version=2) == (NONE, producer[0], producer[1] + 1)


# Administration.


def listed(tried: Transactions, **filters: object) -> list[str]:
    request = ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": [], **filters})
    decision = tried.shard.list_transactions(Ticket(1), request, lambda name: name != "hidden", tried.now)
    ((_, answer),) = decision.answers
    assert isinstance(answer, ListTransactionsResponse)
    return [each.transactional_id for each in answer.transaction_states]


def test_transactions_are_listed_as_far_as_the_filters_let_them() -> None:
    tried, (producer_id, _) = ongoing()
    tried.producer("idle")
    tried.producer("hidden")
    tried.pass_time(100)
    assert listed(tried) == [ID, "idle"]
    assert listed(tried, state_filters=["Ongoing", "Dead", "Odd"]) == [ID]
    assert listed(tried, state_filters=["Odd"]) == []
    assert listed(tried, producer_id_filters=[producer_id, 5]) == [ID]
    assert listed(tried, state_filters=["Ongoing"], duration_filter=99) == [ID]
    assert listed(tried, state_filters=["Ongoing"], duration_filter=100) == []


def test_a_transaction_is_described() -> None:
    tried, (producer_id, epoch) = ongoing()
    ((_, answer),) = tried.shard.describe(Ticket(1), ID).answers
    assert isinstance(answer, TransactionState)
    assert (answer.transaction_state, answer.producer_id, answer.producer_epoch) == ("Ongoing", producer_id, epoch)
    assert [(topic.topic, topic.partitions) for topic in answer.topics] == [("t", [0, 1])]
    ((_, unknown),) = tried.shard.describe(Ticket(1), "nobody").answers
    assert isinstance(unknown, TransactionState)
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_states_have_kafkas_names() -> None:
    assert [state.title for state in State] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


def test_the_diagram_in_the_documentation_is_drawn_from_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "internals" / "transactions.md").read_text()
    _, _, rest = page.partition("stateDiagram-v2\n")
    drawn = {line.strip() for line in rest.partition("```")[0].splitlines()}
    assert drawn == {
        f"{before.name} --> {after.name} : {event.name}"
        for before, events in TRANSITIONS.items()
        for event, after in events.items()
    }
