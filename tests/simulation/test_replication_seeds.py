"""Replicated partitions under made-up faults: every promise holds in every seed, and the seeds meet what they must."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.simulation.playing import Played, Player, part_name, parts

from odradek.sim.replication import FEWEST_FAULTS, FEWEST_OPERATIONS, SHORTEST_S, STATES
from odradek.sim.trace import OPERATION

SEEDS = range(1, 201)
"""Seeds 10, 15 and 17 found a follower whose last epoch had no record, and who asked for ever because of it."""


@pytest.mark.parametrize("seeds", parts(SEEDS), ids=part_name)
def test_every_promise_holds(play_part: Player, seeds: Sequence[int]) -> None:
    played = play_part("replication", seeds)
    broken = {each.seed: each.broken for each in played if each.broken}
    assert broken == {}, f"make sim SCENARIO=replication SEED={min(broken)} shows how it came to this"
    assert [each.seed for each in played if falls_short(each)] == []


@pytest.mark.timeout(1200)
def test_the_seeds_meet_every_state_that_matters(play_part: Player) -> None:
    """Seeds that never reach a state would prove nothing about it."""
    played = [each for seeds in parts(SEEDS) for each in play_part("replication", seeds)]
    met = {state for each in played for state in each.marks}
    assert [state for state in STATES if state not in met] == []
    assert sum(each.acknowledged for each in played) > FEWEST_OPERATIONS * len(SEEDS)


@pytest.mark.parametrize(
    ("operations", "faults", "simulated_s", "short"),
    [(500, 3, 60.0, False), (499, 3, 60.0, True), (500, 2, 60.0, True), (500, 3, 59.9, True), (0, 0, 0.0, True)],
)
def test_a_seed_in_which_too_little_happens_is_told_apart(
    operations: int, faults: int, simulated_s: float, short: bool
) -> None:
    marks = {OPERATION: operations, "fault": faults} if operations else {}
    assert falls_short(Played(1, (), marks, 1, simulated_s)) is short


def falls_short(played: Played) -> bool:
    """Whether a run was too quiet to count as one."""
    return (
        played.simulated_s < SHORTEST_S
        or played.marks.get(OPERATION, 0) < FEWEST_OPERATIONS
        or played.marks.get("fault", 0) < FEWEST_FAULTS
    )
