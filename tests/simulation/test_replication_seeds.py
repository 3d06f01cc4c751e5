"""Replicated partitions under made-up faults: every promise holds in every seed, and the seeds meet what they must."""

from __future__ import annotations

import pytest
from tests.simulation.playing import Played, play_all

from odradek.sim.replication import STATES

SEEDS = range(1, 201)
FEWEST_FAULTS = 3
"""Seeds 10, 15 and 17 found a follower whose last epoch had no record, and who asked for ever because of it."""


@pytest.fixture(scope="module")
def played() -> list[Played]:
    return play_all("replication", SEEDS)


@pytest.mark.timeout(1200)
def test_every_promise_holds(played: list[Played]) -> None:
    broken = {each.seed: each.broken for each in played if each.broken}
    assert broken == {}, f"make sim SCENARIO=replication SEED={min(broken)} shows how it came to this"
    assert [each.seed for each in played if each.marks["fault"] < FEWEST_FAULTS] == []


def test_the_seeds_meet_every_state_that_matters(played: list[Played]) -> None:
    """Seeds that never reach a state would prove nothing about it."""
    met = {state for each in played for state in each.marks}
    assert [state for state in STATES if state not in met] == []
    assert sum(each.acknowledged for each in played) > 100 * len(SEEDS)
