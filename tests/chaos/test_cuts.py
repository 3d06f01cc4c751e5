"""The network between nodes is cut, one way and both ways, while clients reach all of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from odradek.testing.namespaces import can_make_namespaces

pytestmark = pytest.mark.skipif(not can_make_namespaces(), reason="needs `ip`, `unshare` and the right to use them")


@pytest.mark.parametrize("story", ["leader-isolated", "leader-unheard", "two-apart", "newcomers"])
def test_nothing_is_lost_when_the_network_is_cut(story: str) -> None:
    command = ["unshare", "--net", sys.executable, "-m", "tests.chaos.cuts", story]
    run = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
