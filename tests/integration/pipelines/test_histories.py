"""Random histories against a model in plain Python: short ones for every change, long ones for a night."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.pipelines.histories import play

from odradek.apps.pipelines.java import find_java
from odradek.apps.terminal.sentence import Sentence
from odradek.testing import running_node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).parents[3]
SHORT, SHORT_STEPS = 10, 2
LONG = int(os.environ.get("ODRADEK_HISTORIES", "200"))
WITH_FORMATS = 10


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """One node for all: histories have names of their own."""
    with running_node() as node:
        yield node.bootstrap_servers


@pytest.mark.parametrize("seed", range(SHORT))
def test_a_short_history(seed: int, spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    play(seed, spark, bootstrap, tmp_path, steps=SHORT_STEPS)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(SHORT, SHORT + LONG))
def test_a_long_history(seed: int, spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    play(seed, spark, bootstrap, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_histories_with_tables_of_other_formats(form: str) -> None:
    """In a process of their own: a session that runs already cannot be given the format."""
    try:
        find_java(os.environ)
    except Sentence as missing:
        pytest.skip(f"NOT TESTED: {missing}")
    command = [sys.executable, "-m", "tests.integration.pipelines.histories", "--count", str(WITH_FORMATS)]
    ended = subprocess.run(
        [*command, "--formats", form], cwd=REPOSITORY, capture_output=True, text=True, timeout=2900, check=False
    )
    if "cannot fetch" in ended.stdout + ended.stderr:
        pytest.skip(f"NOT TESTED: {ended.stderr.splitlines()[-1]}")
    assert ended.returncode == 0, ended.stdout + ended.stderr
