"""Disks fill up and are lost under load: others lead, nothing acknowledged is lost, and room or a new disk suffices."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def can_mount() -> bool:
    """Whether this user on this machine may have mounts of its own."""
    if os.geteuid() != 0:
        return False
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not can_mount(), reason="needs `unshare`, `mount` and the right to use them")


LONG = ("follower-full", "controller-full", "all-full", "directory-lost")


@pytest.mark.parametrize("story", ["leader-full", *(pytest.param(name, marks=pytest.mark.slow) for name in LONG)])
def test_nothing_is_lost_with_a_disk(story: str) -> None:
    command = ["unshare", "--mount", sys.executable, "-m", "tests.chaos.disks", story]
    run = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
