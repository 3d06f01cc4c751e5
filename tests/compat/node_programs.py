"""Installs what the programs in `node/` need and says how to run them.

The packages and their checksums stand in `node/package-lock.json`; npm brings them to the repository's `.cache/node`.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.compat.once import made_once

SOURCES = Path(__file__).with_name("node")
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "node"
INSTALL_TIMEOUT_S = 300


def node_command(program: str, *arguments: str) -> list[str]:
    """The command that runs a program of `node/`."""
    return ["node", str(installed() / f"{program}.mjs"), *arguments]


def require_node() -> None:
    """Skip the calling test, loudly, where Node.js or npm is missing."""
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"NOT TESTED: {' and '.join(missing)} not installed, so no client for Node.js can run here")


@functools.cache
def installed() -> Path:
    """The directory where the programs and all that they import lie."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(SOURCES.iterdir()))).hexdigest()[:12]
    home = CACHE / digest
    made_once(home, lambda: _install(home))
    return home


def _install(home: Path) -> None:
    # Modules are looked up from where a program lies, so the programs lie beside what they import.
    for source in SOURCES.iterdir():
        shutil.copy(source, home)
    command = ["npm", "ci", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund"]
    outcome = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
    if outcome.returncode != 0:
        raise RuntimeError(f"npm could not install the packages:\n{outcome.stdout}{outcome.stderr}")
