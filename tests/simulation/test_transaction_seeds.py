"""Transactions under made-up faults: every promise holds in every seed, and the seeds meet what they must."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.simulation.playing import Player, part_name, parts

from odradek.sim.trace import OPERATION
from odradek.sim.transactions import FEWEST_FAULTS, FEWEST_OPERATIONS, SHORTEST_S, STATES

SEEDS = range(1, 41)


@pytest.mark.parametrize("seeds", parts(SEEDS), ids=part_name)
def test_every_promise_holds(play_part: Player, seeds: Sequence[int]) -> None:
    played = play_part("transactions", seeds)
    broken = {each.seed: each.broken for each in played if each.broken}
    assert broken == {}, f"make sim SCENARIO=transactions SEED={min(broken)} shows how it came to this"
    quiet = [
        each.seed
        for each in played
        if each.simulated_s < SHORTEST_S
        or each.marks.get(OPERATION, 0) < FEWEST_OPERATIONS
        or each.marks.get("fault", 0) < FEWEST_FAULTS
    ]
    assert quiet == []


@pytest.mark.timeout(600)
def test_the_seeds_meet_every_state_that_matters(play_part: Player) -> None:
    """Seeds that never reach a state would prove nothing about it."""
    met = {state for seeds in parts(SEEDS) for each in play_part("transactions", seeds) for state in each.marks}
    assert [state for state in STATES if state not in met] == []
