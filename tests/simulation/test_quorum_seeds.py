"""Clusters under made-up faults: every promise holds in every seed, and the seeds together meet what they must."""

from __future__ import annotations

import pytest
from tests.simulation.playing import Played, play_all

from odradek.sim.quorum import SHORTEST_S, STATES

SEEDS = range(1, 201)
FEWEST_FAULTS = 3
"""Seeds 1 to 6 found a new leader that wrote records without what the cluster's version has in them."""


@pytest.fixture(scope="module")
def played() -> list[Played]:
    return play_all("quorum", SEEDS)


@pytest.mark.timeout(1200)
def test_every_promise_holds(played: list[Played]) -> None:
    broken = {each.seed: each.broken for each in played if each.broken}
    assert broken == {}, f"make sim SCENARIO=quorum SEED={min(broken)} shows how it came to this"
    assert [each.seed for each in played if each.marks["fault"] < FEWEST_FAULTS] == []
    assert [each.seed for each in played if each.simulated_s < SHORTEST_S] == []


def test_the_seeds_meet_every_state_that_matters(played: list[Played]) -> None:
    """Seeds that never reach a state would prove nothing about it."""
    met = {state for each in played for state in each.marks}
    assert [state for state in STATES if state not in met] == []
    assert sum(each.acknowledged for each in played) > 20 * len(SEEDS)
