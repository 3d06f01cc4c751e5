"""One seed is one run, whatever the process: hash seeds, environment and machine speed change nothing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from odradek.sim.run import play

PROGRAM = """
import sys
from odradek.sim.run import play
outcome = play(int(sys.argv[1]), sys.argv[2])
assert not outcome.broken, outcome.broken
print(outcome.digest)
print("\\n".join(outcome.lines))
"""


def trace_elsewhere(seed: int, scenario: str, *, hash_seed: str) -> list[str]:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", PROGRAM, str(seed), scenario]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    return ran.stdout.splitlines()


@pytest.mark.parametrize(
    ("scenario", "seeds"),
    [
        ("logs", (3, 10, 18)),
        ("groups", (3, 10, 18)),
        ("quorum", (3, 10, 18)),
        ("replication", (3,)),
        ("transactions", (3,)),
        ("compaction", (3,)),
    ],
)
def test_the_same_seed_gives_the_same_trace_in_two_processes(scenario: str, seeds: tuple[int, ...]) -> None:
    for seed in seeds:
        one, other = (trace_elsewhere(seed, scenario, hash_seed=hash_seed) for hash_seed in ("1", "4242"))
        differing = next((pair for pair in zip(one, other, strict=False) if pair[0] != pair[1]), None)
        assert one == other, f"seed {seed}: {differing}"
        assert len(one) > 500


@pytest.mark.parametrize("scenario", ["logs", "groups", "quorum"])
def test_the_same_seed_gives_the_same_trace_twice_in_one_process(scenario: str) -> None:
    first, again, different = play(5, scenario), play(5, scenario), play(6, scenario)
    assert not first.broken
    assert first.lines == again.lines
    assert first.digest == again.digest
    assert first.digest != different.digest
