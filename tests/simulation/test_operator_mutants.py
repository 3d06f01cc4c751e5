"""Faults that operators ran into, planted again: each is found out by seeds that have an operator."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.metadata.controller import configs, reassignment
from odradek.sim import operators, replication_cluster
from odradek.sim.run import play
from odradek.storage.directories import LogDirectory

SEEDS = range(400, 460)
LOST = ("was acknowledged", "was read at", "became", "is not the same on", "stands ", "ends at")


def caught(*expected: str, steps: tuple[str, ...] = (), **options: Any) -> bool:
    """Whether some seed breaks a promise in these words; `steps` are those that the operator takes, if not all."""
    make = operators.Operator.__init__

    def aimed(self: operators.Operator, *arguments: Any, **given: Any) -> None:
        make(self, *arguments, **given)
        if steps:
            self._kinds = [(1, getattr(self, step)) for step in steps]

    with pytest.MonkeyPatch.context() as aiming:
        aiming.setattr(operators.Operator, "__init__", aimed)
        aiming.setattr(replication_cluster, "OPERATED", 1.0)
        aiming.setattr(replication_cluster, "TWO_DIRECTORIES", 0.0)
        return any(
            words in broken
            for seed in SEEDS
            for broken in play(seed, "replication", **options).broken
            for words in expected
        )


@pytest.mark.slow
def test_checkpoints_of_a_predecessor_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogDirectory, "_forget_predecessor", lambda self, key: None)
    assert caught(*LOST, "starts at", "damaged", "gave up", steps=("_recreate", "_recreate", "_set_min_insync"))


def test_a_redirected_move_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Kafka: the lists of the first move stay where those of the second are empty."""

    def kept(change: Any, partition: Any, target: Any) -> None:
        change.removing_replicas = tuple(sorted(each for each in partition.replicas if each not in target))
        change.adding_replicas = tuple(sorted(each for each in target if each not in partition.replicas))
        change.replicas = (*target, *change.removing_replicas)
        change.removing_replicas = change.removing_replicas or partition.removing_replicas
        change.adding_replicas = change.adding_replicas or partition.adding_replicas

    monkeypatch.setattr(reassignment, "_redirect", kept)
    assert caught("operated topics are not whole", *LOST, steps=("_redirect",))


@pytest.mark.slow
def test_eligible_leaders_that_outlive_another_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configs, "forgotten_eligible_leaders", lambda *_, **__: [])
    assert caught(*LOST, steps=("_set_min_insync",))
