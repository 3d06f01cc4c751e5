"""A full disk is one sentence, and when there is room again the run goes on as if nothing had been."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.apps.pipelines.java import find_java
from odradek.apps.terminal.sentence import Sentence

REPOSITORY = Path(__file__).parents[3]
UNSHARE = ["unshare", "--mount", "--propagation", "private"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("what", ["lake", "table", "checkpoint"])
def test_a_full_disk(what: str, tmp_path: Path) -> None:
    if shutil.which("unshare") is None or subprocess.run([*UNSHARE, "true"], capture_output=True).returncode:
        pytest.skip("NOT TESTED: no mount namespace may be made here")
    try:
        find_java(os.environ)
    except Sentence as missing:
        pytest.skip(f"NOT TESTED: {missing}")
    command = [*UNSHARE, sys.executable, "-m", "tests.integration.pipelines.full_disk", what, str(tmp_path)]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=850, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
