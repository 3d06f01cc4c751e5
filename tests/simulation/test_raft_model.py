"""The raft core alone under faults: one leader an epoch, what is committed stays; and planted faults are found out."""

from __future__ import annotations

import pytest
from tests.simulation.raft_model import Broken, Model, Replica

from odradek.ids import Offset
from odradek.metadata.raft.core import Raft
from odradek.metadata.raft.progress import Progress
from odradek.metadata.raft.quorum_state import QuorumState
from odradek.metadata.raft.state import Role
from odradek.metadata.raft.voters import ReplicaKey

SEEDS = range(12)
MUTANT_SEEDS = range(60)
SIMULATED_MS = 20_000


def model(seed: int, *, loses_disks: bool = False) -> Model:
    return Model(seed, replicas=5 if seed % 3 == 0 else 3, loses_disks=loses_disks)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds(seed: int) -> None:
    played = model(seed)
    played.run(SIMULATED_MS)
    assert len(played.leaders) > 10
    assert played.truncations > 5
    assert len(played.committed) > 200


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds_where_disks_are_lost_one_after_another(seed: int) -> None:
    played = model(seed, loses_disks=True)
    played.run(SIMULATED_MS)
    assert played.disk_losses > 2
    assert len(played.committed) > 200


def first_broken(*, loses_disks: bool = False) -> str:
    """The first promise that some seed breaks, in words."""
    for seed in MUTANT_SEEDS:
        try:
            model(seed, loses_disks=loses_disks).run(SIMULATED_MS)
        except Broken as broken:
            return str(broken)
    return "nothing"


def test_a_commit_counted_from_an_older_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    count = Progress.committed_end_offset

    def count_all(self: Progress) -> Offset:
        self.epoch_start_offset = Offset(-1)
        return count(self)

    monkeypatch.setattr(Progress, "committed_end_offset", count_all)
    assert "with nothing newer than epoch" in first_broken()


def test_a_vote_that_a_crash_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(self: Model, replica: Replica, state: QuorumState) -> QuorumState | None:
        return replica.state if state.voted_id >= 0 else state

    monkeypatch.setattr(Model, "persist", forget)
    assert "went back from epoch" in first_broken()


def test_a_vote_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    grants = Raft._grants

    def generous(self: Raft, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        if not pre_vote and self.role is not Role.LEADER:
            return up_to_date
        return grants(self, candidate, up_to_date=up_to_date, pre_vote=pre_vote)

    monkeypatch.setattr(Raft, "_grants", generous)
    assert "is led by" in first_broken()


def test_a_lost_disk_that_is_forgotten_at_the_second_start(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Replica.start

    def forget(self: Replica) -> None:
        if self.state is not None:
            self.amnesia = None
        start(self)

    monkeypatch.setattr(Replica, "start", forget)
    assert "was committed as" in first_broken(loses_disks=True)


def test_amnesia_that_ends_with_what_an_older_leader_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    accepted = Raft.fetch_accepted

    def early(self: Raft, high_watermark: int, now_ms: int) -> bool:
        self._remember()
        return accepted(self, high_watermark, now_ms)

    monkeypatch.setattr(Raft, "fetch_accepted", early)
    assert "was committed as" in first_broken(loses_disks=True)
