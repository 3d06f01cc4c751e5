"""The same file under Spark's own launcher, with the same options."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.apps.pipelines.session import CONNECTOR
from odradek.apps.pipelines.trial import Trial
from odradek.testing import running_node

RECORDS = 100
PIPELINE = """
    pipeline = Pipeline("numbers")
    pipeline.source("numbers", sources.topic("numbers", value=schemas.json("n bigint")))

    @pipeline.dataset
    def rows(numbers):
        return numbers.select("n")

    pipeline.sink("lake", rows, sinks.parquet("lake/numbers"))

    if __name__ == "__main__":
        pipeline.main()
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_spark_submit(spark: SparkSession, written: Callable[[str], Path], tmp_path: Path) -> None:
    file = written(PIPELINE)
    with running_node() as node:
        trial = Trial(str(file), spark, node.bootstrap_servers, tmp_path)
        trial.send("numbers", *({"n": n} for n in range(RECORDS)))
        submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]", "--packages", CONNECTOR]
        options = ["--bootstrap", node.bootstrap_servers, "--data", str(tmp_path), "--available-now"]
        done = subprocess.run(
            [*submit, str(file), *options],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr[-2000:]
        assert f"numbers: {RECORDS} records" in done.stdout
        assert sorted(row["n"] for row in trial.rows("lake")) == list(range(RECORDS))
        assert sum(trial.committed().values()) == RECORDS
