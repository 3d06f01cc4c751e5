"""Tables of Delta Lake and Apache Iceberg, as a user runs them: killed on the way, exact in the end, compacted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.pipelines.driver import Driver

from odradek.apps.pipelines.java import find_java
from odradek.apps.pipelines.trial import Trial
from odradek.apps.terminal.sentence import Sentence
from odradek.testing import running_node

RECORDS = 600
PER_BATCH = 50

PIPELINE = f"""
    pipeline = Pipeline("numbers")
    pipeline.source("numbers", sources.topic("numbers", value=schemas.json("n bigint"), max_per_trigger={PER_BATCH}))

    @pipeline.dataset
    def rows(numbers):
        return numbers.select("n", (F.col("n") % 2).alias("odd"))

    pipeline.sink("lake", rows, sinks.FORMAT("lake/numbers", partition_by=["odd"]))
"""
READING = """
import json, sys
from pathlib import Path
from odradek.apps.pipelines import sinks
from odradek.apps.pipelines.session import open_session

form, base, log = sys.argv[1:]
spark = open_session("reading", master="local[2]", log_file=Path(log), formats=[form])
rows = sinks.read(spark, getattr(sinks, form)("lake/numbers"), base)
print(json.dumps(sorted((row.n, row.odd) for row in rows.collect())))
"""


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_table_is_exact_after_a_kill(form: str, written: Callable[[str], Path], tmp_path: Path) -> None:
    try:
        find_java(os.environ)
    except Sentence as missing:
        pytest.skip(f"NOT TESTED: {missing}")
    file = written(PIPELINE.replace("FORMAT", form))
    expected = [[n, n % 2] for n in range(RECORDS)]
    with running_node() as node:
        trial = Trial(str(file), None, node.bootstrap_servers, tmp_path)  # type: ignore[arg-type]
        trial.send("numbers", *({"n": n} for n in range(RECORDS)))
        options = ("--bootstrap", node.bootstrap_servers, "--master", "local[2]")
        driver = Driver(file, tmp_path, *options, "--quiet")
        try:
            driver.wait_for_batches(3)
        except AssertionError:
            if "cannot fetch" in driver.told():
                pytest.skip(f"NOT TESTED: {driver.told()}")
            raise
        finally:
            if driver.process.poll() is None:
                driver.kill()
        again = Driver(file, tmp_path, *options, "--format", "json", "--available-now")
        assert again.wait() == 0, again.told()
        assert 0 < json.loads(again.told().splitlines()[-1])["records_read"] < RECORDS, "the rest, and not all again"
        assert read(form, tmp_path) == expected
        assert sum(trial.committed().values()) == RECORDS
    compacting = Driver(file, tmp_path, "--master", "local[2]", "--format", "json", action="compact")
    assert compacting.wait() == 0, compacting.told()
    (done,) = json.loads(compacting.told())
    assert done["before"] > done["after"] > 0, done
    assert read(form, tmp_path) == expected


def read(form: str, base: Path) -> list[list[int]]:
    """By a session of its own: one that runs already cannot be given the format."""
    command = [sys.executable, "-c", READING, form, str(base), str(base / "reading.log")]
    told = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True).stdout
    rows: list[list[int]] = json.loads(told.splitlines()[-1])
    return rows
