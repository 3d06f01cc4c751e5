"""Replicated partitions under made-up faults: every promise holds in every seed, and the seeds meet what they must."""

from __future__ import annotations

import pytest

from odradek.sim.replication import STATES
from odradek.sim.run import play

SEEDS = range(1, 61)

REMEMBERED: tuple[int, ...] = ()
"""Seeds that found something: a follower whose last epoch had no record (10, 15, 17)."""

met: dict[str, int] = {}


@pytest.mark.parametrize("seed", sorted({*SEEDS, *REMEMBERED}))
def test_every_promise_holds(seed: int) -> None:
    outcome = play(seed, "replication")
    assert not outcome.broken, f"make sim SCENARIO=replication SEED={seed} shows how it came to this: {outcome.broken}"
    for state, count in outcome.marks.items():
        met[state] = met.get(state, 0) + count
    met["acknowledged"] = met.get("acknowledged", 0) + outcome.acknowledged


def test_the_seeds_meet_every_state_that_matters(request: pytest.FixtureRequest) -> None:
    """Runs last; seeds that never reach a state would prove nothing about it."""
    if sum(item.path == request.path for item in request.session.items) <= len(SEEDS):
        pytest.skip("only some of the seeds were run")
    assert [state for state in STATES if not met.get(state)] == []
    assert met["acknowledged"] > 100 * len(SEEDS)
