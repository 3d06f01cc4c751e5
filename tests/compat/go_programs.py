"""Builds the programs in `go/` and says how to run them.

The modules and their checksums stand in `go/go.mod` and `go/go.sum`; Go brings them to the repository's `.cache/go`.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.compat.once import alone_in

SOURCES = Path(__file__).with_name("go")
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "go"
BUILD_TIMEOUT_S = 300


def go_command(program: str, *arguments: str) -> list[str]:
    """The command that runs a program of `go/`."""
    return [str(_built() / program), *arguments]


def require_go() -> None:
    """Skip the calling test, loudly, where Go is missing."""
    if shutil.which("go") is None:
        pytest.skip("NOT TESTED: go not installed, so no client for Go can run here")


def environment() -> dict[str, str]:
    """What Go is run with: its caches are the repository's own."""
    settings = {
        "GOMODCACHE": str(CACHE / "mod"),
        "GOCACHE": str(CACHE / "build"),
        # Files that can be removed again, and no look at version control.
        "GOFLAGS": "-modcacherw -buildvcs=false -mod=readonly",
    }
    return os.environ | settings


@functools.cache
def _built() -> Path:
    """Built anew each time: Go itself knows what has changed."""
    binaries = CACHE / "bin"
    with alone_in(binaries):
        outcome = subprocess.run(
            ["go", "build", "-o", f"{binaries}{os.sep}", "./franz", "./segmentio"],
            cwd=SOURCES,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
    if outcome.returncode != 0:
        raise RuntimeError(f"Go could not build the programs:\n{outcome.stdout}{outcome.stderr}")
    return binaries
