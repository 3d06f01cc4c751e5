"""Drawn schedules of kill -9 under a pipeline on a cluster of three: its driver, an executor, the leader of what it
reads, and in the end a compaction of its lake. `make pipelines-kill` draws more (SEED=7 COUNT=5)."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bench.clusters import Cluster, new_cluster
from tests.integration.pipelines.driver import Driver

from odradek.apps.pipelines.compaction import WORK, read_log
from odradek.apps.pipelines.java import find_java
from odradek.apps.pipelines.trial import Trial
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import Session
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="NOT TESTED: no /proc here, so executors cannot be found"),
]
SEED = int(os.environ.get("ODRADEK_KILL_SEED", "7"))
COUNT = int(os.environ.get("ODRADEK_KILL_COUNT", "1"))
RUNS = [("odradek", SEED + number) for number in range(COUNT)]
RECORDS = 1_200
PER_BATCH = 100
BAD_EVERY = 100
REPLICATED = {"default.replication.factor": "3", "min.insync.replicas": "2", "auto.create.topics.enable": "false"}

PIPELINE = f"""
    pipeline = Pipeline("numbers")
    pipeline.source("numbers", sources.topic("numbers", value=schemas.json("n bigint"), max_per_trigger={PER_BATCH}))

    @pipeline.dataset
    def squares(numbers):
        return numbers.select("n", (F.col("n") * F.col("n")).alias("square"), "_partition", "_offset")

    pipeline.sink("lake", squares, sinks.parquet("lake"))
    pipeline.sink("out", squares, sinks.topic("squares"))
"""


@pytest.mark.parametrize(("kind", "seed"), [*RUNS, pytest.param("kafka", SEED, marks=pytest.mark.java)])
def test_a_schedule(kind: str, seed: int, spark: SparkSession, written: Callable[[str], Path], tmp_path: Path) -> None:
    try:
        find_java(os.environ)
    except Sentence as missing:
        pytest.skip(f"NOT TESTED: {missing}")
    draw = random.Random(seed)
    kills = draw.sample(("driver", "executor", "leader"), 3)
    after = sorted(draw.sample(range(1, RECORDS // PER_BATCH - 3), 3))
    print(f"seed {seed} on {kind}: {', '.join(f'{who} after {at}' for who, at in zip(kills, after, strict=True))}")
    file = written(PIPELINE)
    values = [b"spoilt %d" % n if n % BAD_EVERY == 0 else b'{"n": %d}' % n for n in range(RECORDS)]
    with new_cluster(kind, properties=REPLICATED) as cluster:
        trial = Trial(str(file), spark, cluster.bootstrap, tmp_path)
        trial.send("numbers", *values)
        driver = start(file, tmp_path, cluster)
        try:
            for victim, at in zip(kills, after, strict=True):
                driver.wait_for_batches(at)
                time.sleep(draw.random())  # Where in the next batch it strikes is drawn, too.
                driver = strike(victim, driver, draw, file=file, trial=trial, cluster=cluster, data=tmp_path)
            driver.wait_for_batches(after[-1] + 1)
            driver.kill()
            check_group(trial)
            driver = Driver(file, tmp_path, "--bootstrap", cluster.bootstrap, "--format", "json", "--available-now")
            assert driver.wait() == 0, driver.told()
        finally:
            if driver.process.poll() is None:
                driver.kill()
        check(trial, values)
        assert sum(trial.committed().values()) == RECORDS
        kill_a_compaction(file, trial, draw, tmp_path)


def start(file: Path, data: Path, cluster: Cluster) -> Driver:
    return Driver(file, data, "--bootstrap", cluster.bootstrap, "--quiet", "--master", "local-cluster[2,1,1024]")


def strike(
    victim: str, driver: Driver, draw: random.Random, *, file: Path, trial: Trial, cluster: Cluster, data: Path
) -> Driver:
    """Kill one, and put another in its place unless Spark does; the driver that runs afterwards."""
    if victim == "executor":
        os.kill(draw.choice(driver.executors()), signal.SIGKILL)
    elif victim == "leader":
        leader = leader_of(trial, draw.randrange(2))
        cluster.server(leader).kill()
        driver.wait_for_batches(driver.finished() + 1)
        cluster.server(leader).spawn()
        cluster.wait_until_whole()
    else:
        driver.kill()
        check_group(trial)
        return start(file, data, cluster)
    return driver


def leader_of(trial: Trial, partition: int) -> int:
    async def ask() -> int:
        async with Session({"bootstrap.servers": trial.bootstrap}).admin() as admin:
            described = (await admin.describe_topics(["numbers"]))["numbers"]
        assert not isinstance(described, KafkaError)
        return int(described.partitions[partition].leader)

    return asyncio.run(ask())


def check_group(trial: Trial) -> None:
    """The group is never ahead of what is in the lake. Asked first, so that the lake can only have more by then."""
    committed = trial.committed()
    offsets = {(row["_partition"], row["_offset"]) for row in trial.rows("lake")}
    for at, end in committed.items():
        missing = {offset for offset in range(end) if (at.partition, offset) not in offsets}
        assert missing <= bad_offsets(trial, at.partition), f"the group is at {end} of {at}"


def bad_offsets(trial: Trial, partition: int) -> set[int]:
    records = trial.spark.read.format("kafka").option("kafka.bootstrap.servers", trial.bootstrap)
    rows = records.option("subscribe", "numbers").load().where(f"partition = {partition}").collect()
    return {row.offset for row in rows if bytes(row.value).startswith(b"spoilt")}


def check(trial: Trial, values: list[bytes]) -> None:
    good = [n for n in range(RECORDS) if n % BAD_EVERY]
    assert sorted((row["n"], row["square"]) for row in trial.rows("lake")) == [(n, n * n) for n in good]
    assert {row["n"] for row in trial.rows("out")} == set(good), "at least once: none is missing"
    letters = [each.value for each in trial.dead_letters()]
    assert sorted(letters) == sorted(value for value in values if value.startswith(b"spoilt"))


def kill_a_compaction(file: Path, trial: Trial, draw: random.Random, data: Path) -> None:
    """Once in the middle of it, then to its end: the rows are the same throughout."""
    lake = data / "lake"
    before = Counter(tuple(row.values()) for row in trial.rows("lake"))
    compacting = Driver(file, data, action="compact")
    try:
        compacting.wait_until(lambda: (lake / WORK).is_dir())
        time.sleep(draw.random())
    finally:
        if compacting.process.poll() is None:
            compacting.kill()
    assert Counter(tuple(row.values()) for row in trial.rows("lake")) == before
    compacting = Driver(file, data, "--keep-minutes", "0", action="compact")
    try:
        assert compacting.wait() == 0, compacting.told()
    finally:
        if compacting.process.poll() is None:
            compacting.kill()
    assert Counter(tuple(row.values()) for row in trial.rows("lake")) == before
    files = {each.name for each in lake.glob("*.parquet")}
    listed = {each["path"].rpartition("/")[2] for part in read_log(lake).entries() for each in part}
    assert files >= listed
    assert any(name.startswith("part-compacted-") for name in listed)
