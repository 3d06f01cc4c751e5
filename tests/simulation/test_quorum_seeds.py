"""Clusters under made-up faults: every promise holds in every seed, and the seeds together meet what they must."""

from __future__ import annotations

import pytest

from odradek.sim.quorum import SHORTEST_S, STATES
from odradek.sim.run import play

SEEDS = range(1, 201)
FEWEST_FAULTS = 3

REMEMBERED: tuple[int, ...] = ()
"""Seeds that found something. What they draw changes with the code, so they are told here in words as well."""

met: dict[str, int] = {}


@pytest.mark.parametrize("seed", sorted({*SEEDS, *REMEMBERED}))
def test_every_promise_holds(seed: int) -> None:
    outcome = play(seed, "quorum")
    assert not outcome.broken, f"make sim SCENARIO=quorum SEED={seed} shows how it came to this: {outcome.broken}"
    assert outcome.simulated_s >= SHORTEST_S
    assert outcome.marks["fault"] >= FEWEST_FAULTS
    for state, count in outcome.marks.items():
        met[state] = met.get(state, 0) + count
    met["change answered"] = met.get("change answered", 0) + outcome.acknowledged


def test_the_seeds_meet_every_state_that_matters(request: pytest.FixtureRequest) -> None:
    """Runs last; seeds that never reach a state would prove nothing about it."""
    if sum(item.path == request.path for item in request.session.items) <= len(SEEDS):
        pytest.skip("only some of the seeds were run")
    assert [state for state in STATES if not met.get(state)] == []
    assert met["change answered"] > 20 * len(SEEDS)
