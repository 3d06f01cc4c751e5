"""The checkers of transactions are worth something: nodes with a planted fault are found out within a few seeds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from odradek.coordinator.group.offsets import CommittedOffsets
from odradek.coordinator.shard import CoordinatorDecision, Moment
from odradek.coordinator.transaction.shard import TransactionShard
from odradek.coordinator.transaction.state import Transaction
from odradek.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerResult
from odradek.server.coordinators.markers import MarkerWriter
from odradek.server.coordinators.shard_runner import ShardRunner
from odradek.sim import transaction_cluster
from odradek.sim.run import play
from odradek.sim.transaction_faults import TransactionFaults
from odradek.storage.log import Log
from odradek.storage.producer_state import CompletedTxn, Producers

SEEDS = range(300, 340)


def caught(*expected: str, aims: tuple[str, ...] = ()) -> bool:
    """Whether some seed breaks a promise in these words, or in some of them; stops with the first that does.

    `aims` are the faults that are drawn, where only few of all kinds lead to where the planted one shows.
    """
    make = TransactionFaults.__init__

    def aimed(self: TransactionFaults, *arguments: Any, **given: Any) -> None:
        make(self, *arguments, **given)
        if aims:
            self.kinds = [(1, getattr(self, aim)) for aim in aims]

    with pytest.MonkeyPatch.context() as aiming:
        aiming.setattr(TransactionFaults, "__init__", aimed)
        return any(
            words in broken for seed in SEEDS for broken in play(seed, "transactions").broken for words in expected
        )


TORN = ("is there in part", "was committed, and", "was aborted, and", "whose transaction was aborted", "was copied")
"""A transaction is not as its producer was told, or not the same everywhere."""

STUCK = ("in peace", "the run was not over")
"""Something never ends."""


def test_markers_before_the_end_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision is in the coordinator's log alone, and may be lost with it."""
    deliver = ShardRunner._deliver

    def hasty(self: ShardRunner[Any], decision: CoordinatorDecision) -> None:
        for effect in decision.effects:
            self._coordinator.begin(self, effect)
        deliver(self, CoordinatorDecision(decision.records, decision.answers, decision.next_deadline_ms))

    monkeypatch.setattr(ShardRunner, "_deliver", hasty)
    assert caught(*TORN, *STUCK, aims=("strike_decided",))


def test_stable_beyond_an_open_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_ended_ones_alone(self: Producers) -> None:
        self.first_unstable_offset = min(self._unreplicated, default=None)

    monkeypatch.setattr(Producers, "_find_first_unstable", of_ended_ones_alone)
    assert caught("and a transaction is open there", "had asked to commit")


def test_aborted_transactions_that_are_forgotten_when_a_segment_is_rolled(monkeypatch: pytest.MonkeyPatch) -> None:
    roll = Log.roll

    def forgetful(self: Log, *given: Any) -> None:
        self.segments[-1].txn_index.clear()
        roll(self, *given)

    monkeypatch.setattr(Log, "roll", forgetful)
    assert caught("whose transaction was aborted", "is there")


def test_readers_that_are_not_told_of_aborted_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "aborted_in", lambda *_: [])
    assert caught("whose transaction was aborted")


def test_a_partition_that_does_not_compare_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A zombie's append is taken after the fence, while its successor has a transaction open."""
    check, check_transactional = Producers.check, Producers.check_transactional

    def open_under_any(self: Producers, producer_id: int, epoch: int) -> bool:
        producer = self.get(producer_id)
        return producer is not None and producer.txn_first_offset >= 0 and epoch <= producer.epoch

    def unfenced(self: Producers, producer_id: int, epoch: int, *given: Any) -> Any:
        producer = self.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            return None
        return check(self, producer_id, epoch, *given)

    def unfenced_too(self: Producers, producer_id: int, epoch: int, *given: Any) -> Any:
        producer = self.get(producer_id)
        if producer is not None and epoch < producer.epoch and producer.txn_first_offset >= 0:
            return None
        return check_transactional(self, producer_id, epoch, *given)

    monkeypatch.setattr(Producers, "is_open", open_under_any)
    monkeypatch.setattr(Producers, "check", unfenced)
    monkeypatch.setattr(Producers, "check_transactional", unfenced_too)
    assert caught("of a producer that was fenced")


def test_a_coordinator_that_does_not_compare_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    def whoever(self: TransactionShard, transactional_id: str, producer_id: int, producer_epoch: int) -> Transaction:
        return self.transactions[transactional_id]

    monkeypatch.setattr(TransactionShard, "_of_producer", whoever)
    assert caught("was told that this is done", "of a producer that was fenced")


def test_offsets_that_count_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    replay = CommittedOffsets.replay

    def at_once(self: CommittedOffsets, key: Any, content: Any, producer: Any) -> None:
        replay(self, key, content, None)

    monkeypatch.setattr(CommittedOffsets, "replay", at_once)
    assert caught("was copied 0 times")


def test_markers_that_are_forgotten_when_the_coordinator_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = TransactionShard.loaded

    def forgetful(self: TransactionShard, now: Moment) -> CoordinatorDecision:
        return CoordinatorDecision((), next_deadline_ms=loaded(self, now).next_deadline_ms)

    monkeypatch.setattr(TransactionShard, "loaded", forgetful)
    assert caught(*STUCK, aims=("strike_between_steps", "strike_coordinator"))


def test_an_epoch_that_does_not_rise_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Transaction.ended

    def as_before(self: Transaction, *, client_version: int, **given: Any) -> Transaction:
        return ended(self, client_version=min(client_version, 1), **given)

    monkeypatch.setattr(Transaction, "ended", as_before)
    assert caught(*TORN, *STUCK, "was told that this is done", "could not go on")


def test_a_marker_that_is_applied_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one comes late, as from a connection that was taken for lost, and ends the next transaction."""
    write = MarkerWriter.write

    async def twice(self: MarkerWriter, markers: Sequence[WritableTxnMarker]) -> list[WritableTxnMarkerResult]:
        async def again() -> None:
            await asyncio.sleep(1)
            await write(self, markers)

        task = asyncio.create_task(again())
        task.add_done_callback(lambda done: done.exception())
        return await write(self, markers)

    monkeypatch.setattr(MarkerWriter, "write", twice)
    monkeypatch.setattr(Producers, "check_marker", lambda *_, **__: None)
    assert caught(*TORN)


def test_an_answer_of_a_coordinator_that_counts_when_its_transaction_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late batch begins a transaction that nobody will end (KIP-890)."""
    ended = Producers.ended

    def keeps_proofs(self: Producers, producer_id: int, epoch: int, **given: Any) -> CompletedTxn | None:
        asked = self._verifications.get(producer_id)
        completed = ended(self, producer_id, epoch, **given)
        if asked is not None:
            self._verifications[producer_id] = asked
        return completed

    monkeypatch.setattr(Producers, "ended", keeps_proofs)
    monkeypatch.setattr(transaction_cluster, "LATE_ANSWERS", 0.3)
    assert caught(*STUCK)


def test_a_transaction_that_begins_without_its_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before KIP-890: whatever is late opens a transaction."""
    monkeypatch.setattr(Producers, "check_verified", lambda *_: None)
    monkeypatch.setattr(transaction_cluster, "LATE_ANSWERS", 0.3)
    assert caught(*STUCK, "of a producer that was fenced")
