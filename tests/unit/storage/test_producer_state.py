"""Idempotence and transactions, as one partition sees them."""

from __future__ import annotations

import pytest
from tests.unit.storage.transactions import end, produce
from tests.unit.storage.worlds import DIRECTORY, NOW_MS, Machine, append, batch_of, open_log

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.config import LogConfig
from odradek.storage.log import Log
from odradek.storage.producer_state import KeptBatch, Producers, ProducerSettings
from odradek.storage.txn_index import AbortedTxn

MAX_SEQUENCE = (1 << 31) - 1


@pytest.fixture
def log() -> Log:
    return open_log(Machine().disk)


def refused(log: Log, sequence: int, *, epoch: int = 0, count: int = 1, txn: bool = False) -> ErrorCode:
    before = log.log_end_offset
    with pytest.raises(KafkaError) as error:
        produce(log, sequence, epoch=epoch, count=count, txn=txn)
    assert log.log_end_offset == before
    return error.value.code


def test_duplicates_among_the_last_five_get_their_first_offsets(log: Log) -> None:
    sent = [produce(log, 2 * number, count=2) for number in range(6)]
    for number in range(1, 6):
        again = produce(log, 2 * number, count=2)
        assert again.duplicate
        assert (again.base_offset, again.last_offset) == (sent[number].base_offset, sent[number].last_offset)
    assert refused(log, 0, count=2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(log, 10, count=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 12


def test_gaps_are_refused(log: Log) -> None:
    produce(log, 0)
    assert refused(log, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    produce(log, 1)


def test_an_unknown_producer_may_start_anywhere(log: Log) -> None:
    produce(log, 42)
    produce(log, 43)


def test_sequences_wrap(log: Log) -> None:
    first = produce(log, MAX_SEQUENCE - 1, count=3)
    assert produce(log, MAX_SEQUENCE - 1, count=3).base_offset == first.base_offset
    produce(log, 1)
    produce(log, 2)
    assert refused(log, MAX_SEQUENCE) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_epochs_fence(log: Log) -> None:
    produce(log, 0, epoch=1)
    assert refused(log, 1, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, 1, epoch=2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    produce(log, 0, epoch=2)
    assert not produce(log, 1, epoch=2).duplicate


def test_producers_expire() -> None:
    log = open_log(Machine().disk, producers=ProducerSettings(expiration_ms=1_000))
    produce(log, 0)
    produce(log, 0, producer=8, txn=True)
    assert log.producers.expire(NOW_MS + 999) == 0
    assert log.producers.expire(NOW_MS + 1000) == 1, "an open transaction keeps its producer"
    produce(log, 17)


def test_transactions_hold_back_the_stable_offset(log: Log) -> None:
    append(log, b"plain")
    produce(log, 0, txn=True)
    produce(log, 0, txn=True, producer=8)
    log.advance_high_watermark(3)
    assert log.last_stable_offset == 1
    end(log, commit=True)
    assert log.last_stable_offset == 1, "the marker is not replicated yet"
    log.advance_high_watermark(4)
    assert log.last_stable_offset == 2
    end(log, commit=False, producer=8)
    log.advance_high_watermark(5)
    assert log.last_stable_offset == 5
    assert log.aborted_transactions(0, 5) == [AbortedTxn(8, 2, 4, 5)]
    assert log.aborted_transactions(5, 9) == []


def test_a_write_outside_of_the_open_transaction_is_refused(log: Log) -> None:
    produce(log, 0, txn=True)
    assert refused(log, 1) is ErrorCode.INVALID_TXN_STATE
    end(log, commit=True)
    produce(log, 1)


def test_old_coordinators_are_fenced(log: Log) -> None:
    produce(log, 0, txn=True)
    end(log, commit=True, coordinator_epoch=5)
    produce(log, 1, txn=True)
    with pytest.raises(KafkaError) as error:
        end(log, commit=True, coordinator_epoch=4)
    assert error.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    with pytest.raises(KafkaError) as error:
        end(log, commit=True, epoch=-1, coordinator_epoch=6)
    assert error.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_with_a_new_epoch_starts_sequences_over(log: Log) -> None:
    produce(log, 0, txn=True)
    end(log, commit=False, epoch=1)
    assert refused(log, 1, epoch=1, txn=True) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    produce(log, 0, epoch=1, txn=True)


def test_empty_transactions_leave_no_trace(log: Log) -> None:
    end(log, commit=False)
    log.advance_high_watermark(1)
    assert log.last_stable_offset == 1
    assert log.aborted_transactions(0, 10) == []


def test_the_snapshots_bytes() -> None:
    producers = Producers()
    producers.appended(5, 2, 8, base_offset=98, last_delta=1, timestamp=1000, transactional=True)
    data = producers.snapshot()
    assert data[:2] == bytes.fromhex("0001")
    assert data[6:] == bytes.fromhex(
        "00000001 0000000000000005 0002 00000009 0000000000000063 00000001 00000000000003e8 ffffffff 0000000000000062"
    )
    again = Producers()
    again.load(data, now_ms=1000)
    assert again.snapshot() == data
    assert again.first_unstable_offset == 98
    kept = again.get(5)
    assert kept is not None
    assert kept.batches == [KeptBatch(8, 9, 98, 99, 1000)]


def test_every_damaged_snapshot_is_noticed() -> None:
    producers = Producers()
    producers.appended(5, 2, 8, base_offset=98, last_delta=1, timestamp=1000, transactional=False)
    data = producers.snapshot()
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        with pytest.raises(ValueError, match="snapshot"):
            Producers().load(bytes(damaged), now_ms=0)
        with pytest.raises(ValueError, match="snapshot"):
            Producers().load(data[:at], now_ms=0)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("snapshots", ["all", "none", "damaged"])
def test_state_survives_a_restart(clean: bool, snapshots: str) -> None:
    machine = Machine()
    log = open_log(machine.disk, LogConfig(segment_bytes=400))
    for number in range(20):
        produce(log, number)
        produce(log, number, producer=8, txn=True)
        if number % 5 == 4:
            end(log, commit=number % 2 == 0, producer=8)
    produce(log, 20, producer=8, txn=True)
    log.advance_high_watermark(log.log_end_offset)
    state, unstable = log.producers.snapshot(), log.producers.first_unstable_offset
    aborted = log.aborted_transactions(0, 1000)
    assert len(aborted) == 2
    assert unstable is not None
    if clean:
        log.close()
    machine.crash("process")
    for name in machine.disk.list(DIRECTORY):
        if name.endswith(".snapshot") and snapshots == "none":
            machine.disk.unlink(f"{DIRECTORY}/{name}")
        elif name.endswith(".snapshot") and snapshots == "damaged":
            machine.disk.write_file(f"{DIRECTORY}/{name}", b"damaged snapshot")
    again = open_log(machine.disk, LogConfig(segment_bytes=400), clean=clean, high_watermark=log.log_end_offset)
    assert again.producers.snapshot() == state
    assert again.producers.first_unstable_offset == unstable
    assert again.last_stable_offset == unstable
    assert again.aborted_transactions(0, 1000) == aborted
    assert produce(again, 19).duplicate
    produce(again, 20)


def test_truncation_takes_producers_back() -> None:
    log = open_log(Machine().disk, LogConfig(segment_bytes=400))
    for number in range(20):
        produce(log, number)
    state = {}
    for target in (15, 3):
        log.truncate_to(target)
        state[target] = log.producers.get(7)
        assert state[target] is not None
        assert state[target].last_sequence == target - 1
    produce(log, 3)


def test_replicated_batches_are_tracked_too() -> None:
    leader, follower = open_log(Machine().disk), open_log(Machine().disk)
    produce(leader, 0, txn=True)
    end(leader, commit=False)
    produce(leader, 1)
    read = leader.read(0, max_bytes=10_000, end_offset=3, minimum_one=True)
    assert not isinstance(read.records, bytes)
    follower.append_as_follower(memoryview(bytearray(read.records.read())), now_ms=NOW_MS)
    assert follower.producers.snapshot() == leader.producers.snapshot()
    assert follower.aborted_transactions(0, 3) == leader.aborted_transactions(0, 3) != []


def test_a_batch_without_a_producer_costs_no_state(log: Log) -> None:
    log.append_as_leader(batch_of(b"x"), leader_epoch=0, now_ms=NOW_MS)
    assert len(log.producers) == 0


def test_a_truncation_behind_a_marker_that_may_still_be_lost_makes_nothing_stable(log: Log) -> None:
    produce(log, 0, txn=True)
    end(log, commit=True)
    log.advance_high_watermark(1)
    log.roll(NOW_MS)  # With a snapshot, which knows of open transactions only.
    produce(log, 0, producer=8)
    assert log.truncate_to(2)
    assert log.last_stable_offset == 0
    log.advance_high_watermark(2)
    assert log.last_stable_offset == 2
