"""What tests of seeds share: runs that each process of a test run plays a part of."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from tests.simulation.playing import Player, played_once


@pytest.fixture(scope="session")
def play_part(run_directory: Path) -> Player:
    """Plays seeds of a scenario, or reads what became of them where another test has played them."""
    return functools.partial(played_once, run_directory)
