"""Compacted partitions under made-up faults: every promise holds in every seed, and the seeds meet what they must."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.simulation.playing import Player, part_name, parts
from tests.simulation.test_replication_seeds import falls_short

from odradek.sim.compaction import STATES

SEEDS = range(1, 41)


@pytest.mark.parametrize("seeds", parts(SEEDS), ids=part_name)
def test_every_promise_holds(play_part: Player, seeds: Sequence[int]) -> None:
    played = play_part("compaction", seeds)
    broken = {each.seed: each.broken for each in played if each.broken}
    assert broken == {}, f"make sim SCENARIO=compaction SEED={min(broken)} shows how it came to this"
    assert [each.seed for each in played if falls_short(each)] == []


@pytest.mark.timeout(1200)
def test_the_seeds_meet_every_state_that_matters(play_part: Player) -> None:
    """Seeds that never reach a state would prove nothing about it."""
    played = [each for seeds in parts(SEEDS) for each in play_part("compaction", seeds)]
    met = {state for each in played for state in each.marks}
    assert [state for state in STATES if state not in met] == []
