"""A transaction begins in a log only with proof that its coordinator was asked since the last one ended (KIP-890)."""

from __future__ import annotations

import pytest
from tests.unit.storage.transactions import end
from tests.unit.storage.worlds import NOW_MS, Machine, append, batch_of, open_log

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.log import AppendInfo, Log
from odradek.storage.producer_state import ProducerSettings, Verification
from odradek.storage.validation import Origin

PRODUCER = 7


@pytest.fixture
def log() -> Log:
    return open_log(Machine().disk, producers=ProducerSettings(verifies=True))


def ask(log: Log, sequence: int = 0, *, epoch: int = 0, bumps: bool = False, now_ms: int = NOW_MS) -> Verification:
    asked = log.producers.verify(PRODUCER, epoch, sequence, supports_epoch_bump=bumps, now_ms=now_ms)
    assert asked is not None
    return asked


def write(
    log: Log,
    sequence: int,
    proof: Verification | None = None,
    *,
    epoch: int = 0,
    origin: Origin = Origin.CLIENT,
) -> AppendInfo:
    batch = batch_of(
        b"x", producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence, transactional=True, timestamp=NOW_MS
    )
    return log.append_as_leader(memoryview(batch), 0, NOW_MS, origin, transaction=proof)


def refused(log: Log, sequence: int, proof: Verification | None = None, *, epoch: int = 0) -> ErrorCode:
    before = log.log_end_offset
    with pytest.raises(KafkaError) as error:
        write(log, sequence, proof, epoch=epoch)
    assert log.log_end_offset == before
    return error.value.code


def test_the_first_batch_needs_proof_and_the_next_ones_do_not(log: Log) -> None:
    assert refused(log, 0) is ErrorCode.INVALID_TXN_STATE
    proof = ask(log)
    assert refused(log, 0) is ErrorCode.INVALID_TXN_STATE, "asking alone proves nothing"
    write(log, 0, proof)
    assert log.producers.verify(PRODUCER, 0, 1, supports_epoch_bump=False, now_ms=NOW_MS) is None
    write(log, 1)
    end(log, commit=True)
    assert refused(log, 2) is ErrorCode.INVALID_TXN_STATE
    assert refused(log, 2, proof) is ErrorCode.INVALID_TXN_STATE
    write(log, 2, ask(log, 2))


def test_an_answer_counts_for_nothing_once_a_marker_was_written(log: Log) -> None:
    """It may be the end of the very transaction that was asked for: then nobody would end it again."""
    proof = ask(log)
    end(log, commit=False)
    assert refused(log, 0, proof) is ErrorCode.INVALID_TXN_STATE
    again = ask(log)
    assert again is not proof
    assert refused(log, 0, proof) is ErrorCode.INVALID_TXN_STATE, "nor does it once the next one is asked for"
    write(log, 0, again)


def test_all_who_ask_at_once_have_the_same_proof(log: Log) -> None:
    proof = ask(log)
    assert ask(log, 1) is proof
    write(log, 0, proof)
    write(log, 1, proof)


def test_a_batch_does_not_overtake_one_that_was_asked_for_before(log: Log) -> None:
    """The first one may have to be asked for again, and would then never be taken."""
    ask(log, 5)
    proof = ask(log, 3)
    assert refused(log, 5, proof) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    write(log, 3, proof)


def test_a_newer_epoch_counts_anew(log: Log) -> None:
    ask(log, 3, epoch=1)
    proof = ask(log, 9, epoch=2)
    assert ask(log, 0, epoch=1) is proof
    write(log, 9, proof, epoch=2)


def test_where_every_transaction_has_an_epoch_it_begins_with_sequence_0(log: Log) -> None:
    proof = ask(log, 4, bumps=True)
    assert refused(log, 4, proof) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    other = open_log(Machine().disk, producers=ProducerSettings(verifies=True))
    write(other, 4, ask(other, 4))


def test_a_delayed_batch_of_an_older_epoch_is_refused_before_anybody_is_asked(log: Log) -> None:
    write(log, 0, ask(log))
    end(log, commit=True, epoch=1, version=2)
    with pytest.raises(KafkaError) as error:
        ask(log, 1)
    assert error.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, 1) is ErrorCode.INVALID_PRODUCER_EPOCH
    write(log, 0, ask(log, epoch=1, bumps=True), epoch=1)


def test_a_duplicate_of_the_open_transaction_or_of_one_before_needs_no_proof(log: Log) -> None:
    first = write(log, 0, ask(log))
    end(log, commit=True)
    again = write(log, 0)
    assert (again.duplicate, again.base_offset) == (True, first.base_offset)


def test_what_a_coordinator_writes_for_a_transaction_needs_proof_too(log: Log) -> None:
    with pytest.raises(KafkaError) as error:
        write(log, -1, origin=Origin.COORDINATOR)
    assert error.value.code is ErrorCode.INVALID_TXN_STATE
    write(log, -1, ask(log, -1), origin=Origin.COORDINATOR)
    write(log, -1, origin=Origin.COORDINATOR)


def test_followers_ask_nobody(log: Log) -> None:
    batch = batch_of(b"x", producer_id=PRODUCER, producer_epoch=0, base_sequence=0, transactional=True)
    proof = ask(log)
    log.append_as_follower(memoryview(batch), NOW_MS)
    end(log, commit=True)
    assert refused(log, 1, proof) is ErrorCode.INVALID_TXN_STATE, "what was replicated has used it up"


def test_what_nobody_came_back_with_is_forgotten() -> None:
    log = open_log(Machine().disk, producers=ProducerSettings(expiration_ms=1_000, verifies=True))
    proof = ask(log)
    log.producers.expire(NOW_MS + 1_000)
    assert refused(log, 0, proof) is ErrorCode.INVALID_TXN_STATE


def test_it_can_be_switched_off() -> None:
    log = open_log(Machine().disk)
    write(log, 0)


def test_a_marker_of_the_newer_kind_has_a_higher_epoch_or_comes_once_more(log: Log) -> None:
    write(log, 0, ask(log))
    with pytest.raises(KafkaError) as error:
        end(log, commit=True, epoch=0, version=2)
    assert error.value.code is ErrorCode.INVALID_PRODUCER_EPOCH, "it would end the transaction behind its own"
    end(log, commit=True, epoch=1, version=2)
    end(log, commit=True, epoch=1, version=2)
    with pytest.raises(KafkaError) as error:
        end(log, commit=True, epoch=0, version=2)
    assert error.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    log.advance_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset


def test_a_transaction_is_late_that_was_not_written_to_for_long(log: Log) -> None:
    append(log, b"x")
    assert not log.producers.has_late_transaction(NOW_MS + 10_000, 1_000)
    write(log, 0, ask(log))
    assert not log.producers.has_late_transaction(NOW_MS + 1_000, 1_000)
    assert log.producers.has_late_transaction(NOW_MS + 1_001, 1_000)
    end(log, commit=True)
    assert not log.producers.has_late_transaction(NOW_MS + 10_000, 1_000)
