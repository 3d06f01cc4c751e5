"""kill -9 of an executor, of the driver and of a leader: the lake is all the same exactly what it should be."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.pipelines.driver import Driver

from odradek.apps.pipelines.java import find_java
from odradek.apps.pipelines.trial import Trial
from odradek.apps.terminal.sentence import Sentence
from odradek.testing import running_node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEMO = Path(__file__).parents[3] / "examples" / "pipelines" / "demo.py"
RECORDS = 1_000
PER_BATCH = 200

PIPELINE = f"""
    pipeline = Pipeline("numbers")
    pipeline.source(
        "numbers",
        sources.topic("numbers", value=schemas.json("n bigint"), max_per_trigger={PER_BATCH}),
    )

    @pipeline.dataset
    def squares(numbers):
        square = F.udf(lambda n: n * n, "bigint")
        return numbers.select("n", square("n").alias("square"), "_deleted", "_timestamp", "_partition", "_offset")

    pipeline.sink("lake", squares, sinks.parquet("lake"))
    pipeline.sink("table", squares, sinks.parquet_table("table", key="n"))
    pipeline.sink("out", squares, sinks.topic("squares"))
"""


@pytest.fixture(params=["odradek", pytest.param("kafka", marks=[pytest.mark.slow, pytest.mark.java])])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """Brokers of both kinds: pipelines need nothing that Apache Kafka does not have."""
    if request.param == "kafka":
        from bench.apache_kafka import ApacheKafka

        with ApacheKafka() as server:
            yield server.bootstrap
    else:
        with running_node() as node:
            yield node.bootstrap_servers


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="NOT TESTED: no /proc here, so executors cannot be found")
@pytest.mark.timeout(900)
def test_neither_an_executor_nor_the_driver_is_missed(
    bootstrap: str, spark: SparkSession, written: Callable[[str], Path], tmp_path: Path
) -> None:
    try:
        find_java(os.environ)
    except Sentence as missing:
        pytest.skip(f"NOT TESTED: {missing}")
    draw = random.Random(int(os.environ.get("ODRADEK_KILL_SEED", "7")))
    file = written(PIPELINE)
    trial = Trial(str(file), spark, bootstrap, tmp_path)
    good = [number for number in range(RECORDS) if number % 100]
    values = [b'{"n": %d}' % number if number % 100 else b"spoilt %d" % number for number in range(RECORDS)]
    trial.send("numbers", *values)

    driver = Driver(file, tmp_path, "--bootstrap", bootstrap, "--quiet", "--master", "local-cluster[2,1,1024]")
    try:
        driver.wait_for_batches(1)
        executors = driver.executors()
        assert len(executors) == 2
        os.kill(draw.choice(executors), signal.SIGKILL)
        driver.wait_for_batches(2)
        time.sleep(draw.random())
    finally:
        driver.kill()
    committed = trial.committed()
    kept = {row["n"] for row in trial.rows("lake")}
    offsets = trial.spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    for row in offsets.option("subscribe", "numbers").load().collect():
        ahead = row.offset < next((o for at, o in committed.items() if at.partition == row.partition), 0)
        number = int(bytes(row.value).decode().strip('{}"n: spoilt'))
        assert not ahead or number % 100 == 0 or number in kept, "the group is ahead of what is in the lake"
    assert len(kept) < len(good), "the driver was killed on the way"

    driver = Driver(file, tmp_path, "--bootstrap", bootstrap, "--format", "json", "--available-now")
    try:
        assert driver.wait() == 0, driver.told()
    finally:
        if driver.process.poll() is None:
            driver.kill()
    summary = json.loads(driver.told().splitlines()[-1])
    assert summary["event"] == "summary"
    assert 0 < summary["queries"]["sink-lake"]["records_read"] < RECORDS
    assert set(summary["lag"].values()) == {0}
    assert sorted((row["n"], row["square"]) for row in trial.rows("lake")) == [(n, n * n) for n in good]
    assert sorted((row["n"], row["square"]) for row in trial.rows("table")) == [(n, n * n) for n in good]
    out = [row["n"] for row in trial.rows("out")]
    assert set(out) == set(good), "at least once: none is missing"
    letters = [each.value for each in trial.dead_letters()]
    assert sorted(letters) == sorted(value for value in values if value.startswith(b"spoilt"))
    assert sum(trial.committed().values()) == RECORDS


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nor_is_the_leader_of_a_partition() -> None:
    """On a cluster of three, by the example that `make demo` shows: it compares the lake with the records itself."""
    ended = subprocess.run([sys.executable, str(DEMO)], capture_output=True, text=True, timeout=800, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "they are the same" in ended.stdout or "left out" in ended.stdout
