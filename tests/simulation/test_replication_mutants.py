"""The checkers of replication are worth something: brokers with a planted fault are found out within a few seeds."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.ids import NodeId, Offset
from odradek.protocol.errors import ErrorCode
from odradek.replication import follower
from odradek.replication.isr import InSync, IsrProposal
from odradek.replication.leader import Leadership
from odradek.replication.partition import Partition
from odradek.replication.surroundings import Surroundings
from odradek.server.handlers import fetch
from odradek.sim.run import play
from odradek.storage.leader_epochs import EpochEnd
from odradek.storage.log import Log
from odradek.storage.producer_state import Producers

SEEDS = range(300, 420)


def caught(*expected: str, **options: Any) -> bool:
    """Whether some seed breaks a promise in these words, or in some of them; stops with the first that does."""
    return any(
        words in broken
        for seed in SEEDS
        for broken in play(seed, "replication", **options).broken
        for words in expected
    )


LOST = ("was acknowledged", "was read at", "became", "is not the same on", "stands ")
"""A record is gone, or another one stands in its place."""


@pytest.mark.slow
def test_a_log_that_is_cut_to_its_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before KIP-101: a follower cuts what its leader may have committed already."""
    apply = Partition.apply

    def cut(self: Partition, state: Any, *, now_ms: int) -> None:
        epoch = self.state.leader_epoch
        apply(self, state, now_ms=now_ms)
        if not self.is_leader and self.state.leader_epoch != epoch:
            self.log.truncate_to(self.log.high_watermark)

    monkeypatch.setattr(Partition, "apply", cut)
    assert caught(*LOST)


def test_an_acknowledgement_before_the_isr_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "outcome", lambda self, end_offset: ErrorCode.NONE)
    assert caught(*LOST, "ends at")


def test_a_watermark_of_the_leader_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(self: Leadership, current: Offset, leader_end: Offset, **_: Any) -> Offset:
        return leader_end

    monkeypatch.setattr(Leadership, "high_watermark", hasty)
    assert caught(*LOST)


@pytest.mark.slow
def test_a_follower_that_never_compares_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "divergence", lambda log, **_: None)
    assert caught(*LOST, "was refused without a reason", "not all replicas came in sync")


@pytest.mark.slow
def test_a_replica_that_comes_in_before_the_epochs_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def early(self: Leadership, *, surroundings: Surroundings, **_: Any) -> IsrProposal | None:
        ready = tuple(
            replica
            for replica, progress in self.followers.items()
            if replica not in self.in_sync.committed and surroundings.may_join(replica, progress.broker_epoch)
        )
        if self.in_sync.proposal is not None or not ready:
            return None
        return self._propose((*self.in_sync.committed, *ready), surroundings.broker_epoch)

    monkeypatch.setattr(Leadership, "expansion", early)
    assert caught(*LOST)


@pytest.mark.slow
def test_a_read_beyond_the_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of_it(self: fetch.Collector, hosted: Any) -> Offset:
        end: Offset = hosted.partition.log.log_end_offset
        return end

    monkeypatch.setattr(fetch.Collector, "_readable_end", all_of_it)
    assert caught(*LOST)


@pytest.mark.slow
def test_a_new_leader_that_tells_its_end_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "knows_its_end", True)
    assert caught("was told to end at", "ends at")


def test_producers_that_a_follower_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "_replay_producer", lambda self, segment, header, batch: None)
    assert caught("stands ", "was refused without a reason")


@pytest.mark.slow
def test_a_follower_that_skips_what_it_did_not_get(monkeypatch: pytest.MonkeyPatch) -> None:
    take = follower.take

    def generous(log: Log, records: memoryview, **given: Any) -> bool:
        return take(log, records, **{**given, "high_watermark": given["high_watermark"] + 1_000})

    monkeypatch.setattr(follower, "take", generous)
    assert caught(*LOST)


@pytest.mark.slow
def test_an_isr_change_that_does_not_count_before_it_is_agreed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watermark that ignores a pending expansion, and replicas that are about to come in."""

    def narrow(self: InSync, proposal: IsrProposal) -> None:
        self.proposal = proposal

    def committed_only(self: Leadership, leader_end: Offset, surroundings: Surroundings, now_ms: int) -> Any:
        for replica, progress in self.followers.items():
            if replica in self.in_sync.maximal:
                yield progress.log_end_offset

    monkeypatch.setattr(InSync, "propose", narrow)
    monkeypatch.setattr(Leadership, "_counted_ends", committed_only)
    assert caught(*LOST)


@pytest.mark.slow
def test_fetches_of_epochs_that_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that was replaced unawares counts whoever asks, and whoever asks does not say which epoch it means."""

    def anyone(self: Partition, current_leader_epoch: int = -1) -> None:
        pass

    def still(self: Partition, replica_id: NodeId, broker_epoch: int, current_leader_epoch: int) -> Leadership | None:
        return self.leadership

    monkeypatch.setattr(Partition, "require_leader", anyone)
    monkeypatch.setattr(Partition, "require_follower", still)
    monkeypatch.setattr(fetch, "divergence", lambda log, **_: None)
    assert caught(*LOST, "NoneType", "gave up")


@pytest.mark.slow
def test_a_truncation_to_the_leaders_word_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the first version of KIP-101: the follower's own epochs do not count (KIP-279)."""

    def naive(epochs: Any, log_end_offset: Offset, leader: EpochEnd) -> Offset:
        return max(leader.end_offset, Offset(log_end_offset - 1))

    monkeypatch.setattr(follower, "truncation_offset", naive)
    assert caught(*LOST, "not all replicas came in sync", "the run was not over")


@pytest.mark.slow
def test_a_checkpoint_ahead_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery trusts what was never written to the device."""
    monkeypatch.setattr(Log, "recovery_point", property(lambda self: self.log_end_offset, lambda self, value: None))
    assert caught(*LOST, "gave up", "damaged", power=True)


@pytest.mark.slow
def test_duplicates_of_which_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Producers, "check", lambda self, *_, **__: None)
    assert caught("stands ")
