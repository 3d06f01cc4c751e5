"""Many seeds of a scenario, played by as many processes as there are cores."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from odradek.sim.run import play
from odradek.values import value


@value
class Played:
    """What is left of a run when its trace is gone."""

    seed: int
    broken: tuple[str, ...]
    marks: dict[str, int]
    acknowledged: int
    simulated_s: float


def play_all(scenario: str, seeds: Sequence[int]) -> list[Played]:
    """In the order of the seeds."""
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawning) as processes:
        return list(processes.map(_play, [scenario] * len(seeds), seeds, chunksize=4))


def _play(scenario: str, seed: int) -> Played:
    outcome = play(seed, scenario)
    return Played(seed, outcome.broken, dict(outcome.marks), outcome.acknowledged, outcome.simulated_s)
