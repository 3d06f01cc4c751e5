"""Many seeds of a scenario, in parts that the processes of a test run share among them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeAlias

from tests.compat.once import made_once

from odradek.sim.run import play
from odradek.values import value

SEEDS_A_PART = 20


@value
class Played:
    """What is left of a run when its trace is gone."""

    seed: int
    broken: tuple[str, ...]
    marks: dict[str, int]
    acknowledged: int
    simulated_s: float


Player: TypeAlias = Callable[[str, Sequence[int]], list[Played]]
"""Plays these seeds of that scenario, unless they were played in this test run already."""


def parts(seeds: Sequence[int]) -> list[Sequence[int]]:
    """As many as are one test."""
    return [seeds[start : start + SEEDS_A_PART] for start in range(0, len(seeds), SEEDS_A_PART)]


def part_name(seeds: Sequence[int]) -> str:
    """As a test's parameter is called."""
    return f"{seeds[0]}-{seeds[-1]}"


def played_once(directory: Path, scenario: str, seeds: Sequence[int]) -> list[Played]:
    """In the order of the seeds. Who needs a part that another process is playing just now waits for it."""
    home = directory / f"{scenario}-{part_name(seeds)}"
    kept = home / "played.json"
    made_once(home, lambda: _keep(kept, [_play(scenario, seed) for seed in seeds]))
    return [Played(**(each | {"broken": tuple(each["broken"])})) for each in json.loads(kept.read_text())]


def _keep(kept: Path, played: list[Played]) -> None:
    kept.write_text(json.dumps([asdict(each) for each in played]))


def _play(scenario: str, seed: int) -> Played:
    outcome = play(seed, scenario)
    return Played(seed, outcome.broken, dict(outcome.marks), outcome.acknowledged, outcome.simulated_s)
