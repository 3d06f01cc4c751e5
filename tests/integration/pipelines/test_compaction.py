"""Small files become large ones: with the same rows before, after, and wherever on the way it is killed."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.pipelines.driver import Driver

from odradek.apps.pipelines.agreement import OWNER
from odradek.apps.pipelines.compaction import WORK, compact, read_log, small_files
from odradek.apps.pipelines.trial import Trial
from odradek.apps.terminal.sentence import Sentence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Load = Callable[[Path], Trial]
Written = Callable[[str], Path]
GATHERING = "spark.sql.streaming.fileSink.log.compactInterval"
GATHERED_EVERY = 3
TIMES_KILLED = 4
PER_BATCH = 10

PIPELINE = f"""
    pipeline = Pipeline("numbers")
    pipeline.source("numbers", sources.topic("numbers", value=schemas.json("n bigint"), max_per_trigger={PER_BATCH}))

    @pipeline.dataset
    def rows(numbers):
        kind = F.when(F.col("n") % 2 == 0, "even: 0/2 %")
        return numbers.select("n", kind.alias("kind"), F.to_timestamp(F.col("n")).alias("at"))

    pipeline.sink("lake", rows, sinks.parquet("lake", partition_by=["kind"]{{}}))
"""


class Killed(BaseException):
    """Nothing catches it on the way, so that nothing more is done: as kill -9 at this point."""


class Killer:
    """Lets some steps pass, then kills."""

    def __init__(self, passing: int) -> None:
        self.passing = passing
        self.seen: list[str] = []

    def __call__(self, step: str) -> None:
        self.seen.append(step)
        if len(self.seen) > self.passing:
            raise Killed(step)


@pytest.fixture
def gathering(spark: SparkSession) -> Iterator[None]:
    """Spark gathers its log every third batch instead of every tenth: the same code, sooner."""
    spark.conf.set(GATHERING, str(GATHERED_EVERY))
    yield
    spark.conf.unset(GATHERING)


def rows(trial: Trial) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in trial.rows("lake"))


def expected(count: int) -> Counter[int]:
    return Counter(range(count))


def numbers(trial: Trial) -> Counter[int]:
    return Counter(row["n"] for row in trial.rows("lake"))


def data_files(lake: Path) -> set[str]:
    return {str(each.relative_to(lake)) for each in lake.rglob("part-*.parquet") if WORK not in each.parts}


def test_the_rows_are_the_same_wherever_it_is_killed(
    pipeline: Load, written: Written, gathering: None, tmp_path: Path
) -> None:
    trial = pipeline(written(PIPELINE.format("")))
    trial.send("numbers", *({"n": n} for n in range(7 * PER_BATCH)))
    trial.run()
    lake = tmp_path / "lake"
    log = read_log(lake)
    assert (log.gathered, log.latest) == (5, 6)
    before, small = rows(trial), small_files(log)
    assert small > 6
    assert sorted(numbers(trial)) == list(range(7 * PER_BATCH))

    points: list[str] = []
    while not points or points[-1] != "switched":  # The first try dies at its first step, the next at its second.
        killer = Killer(len(points))
        with pytest.raises(Killed):
            compact(trial.spark, lake, step=killer)
        points.append(killer.seen[-1])
        assert rows(trial) == before, f"killed when {points[-1]}"
    assert points[:3] == ["begun", "written", "noted"]
    assert points[3:] == ["moved", "moved", "switching", "switched"]

    listed = {each["path"].rpartition("/")[2] for part in read_log(lake).entries() for each in part}
    assert len([name for name in listed if name.startswith("part-compacted-")]) == 2, "one a partition"
    again = compact(trial.spark, lake, keep_s=0.0)
    assert (again.before, again.after, again.removed) == (0, 0, small)
    assert {each.rpartition("/")[2] for each in data_files(lake)} == listed, "nothing is left of all the tries"
    assert not any((lake / WORK).iterdir())
    assert rows(trial) == before

    # The pipeline goes on: over the next gathering of Spark's log, and another compaction after it.
    trial.send("numbers", *({"n": n} for n in range(7 * PER_BATCH, 13 * PER_BATCH)))
    trial.run()
    assert numbers(trial) == expected(13 * PER_BATCH)
    assert compact(trial.spark, lake).before > 6
    assert numbers(trial) == expected(13 * PER_BATCH)
    assert compact(trial.spark, lake).removed == 0, "whoever reads the replaced files may go on for a while"


def test_a_run_tidies_up(pipeline: Load, written: Written, gathering: None, tmp_path: Path) -> None:
    trial = pipeline(written(PIPELINE.format(", compact_after=6")))
    trial.send("numbers", *({"n": n} for n in range(4 * PER_BATCH)))
    trial.run()
    assert any(name.rpartition("/")[2].startswith("part-compacted-") for name in data_files(tmp_path / "lake"))
    assert small_files(read_log(tmp_path / "lake")) == 0
    assert numbers(trial) == expected(4 * PER_BATCH)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_is_killed_while_it_tidies_up(pipeline: Load, written: Written, tmp_path: Path) -> None:
    """With kill -9, again and again, with batches still to come: its lake is exact all the same, and gets tidy."""
    file, lake = written(PIPELINE.format(", compact_after=4")), tmp_path / "lake"
    trial, draw = pipeline(file), random.Random(int(os.environ.get("ODRADEK_KILL_SEED", "7")))
    count = 60 * PER_BATCH
    trial.send("numbers", *({"n": n} for n in range(count)))
    options = ("--bootstrap", trial.bootstrap, "--quiet", "--conf", f"{GATHERING}={GATHERED_EVERY}")

    def begun() -> set[str]:
        return {each.name for each in (lake / WORK).glob("*") if each.is_dir()}

    for _ in range(TIMES_KILLED):
        before = begun()
        driver = Driver(file, tmp_path, *options)
        try:
            driver.wait_until(lambda before=before: not begun() <= before)  # type: ignore[misc]
            time.sleep(draw.random())
        finally:
            driver.kill()
        assert set(numbers(trial).values()) == {1}
    assert len(numbers(trial)) < count, "it was killed on the way"
    driver = Driver(file, tmp_path, *options, "--available-now")
    assert driver.wait() == 0, driver.told()
    assert numbers(trial) == expected(count)
    assert sum(trial.committed().values()) == count
    assert small_files(read_log(lake)) < 4
    compact(trial.spark, lake, keep_s=0.0)
    listed = {each["path"].rpartition("/")[2] for part in read_log(lake).entries() for each in part}
    there = {each.rpartition("/")[2] for each in data_files(lake)}
    assert {each for each in there if each.startswith("part-compacted-")} <= listed <= there
    assert numbers(trial) == expected(count)


def test_a_lake_of_another_checkpoint_is_not_written_to(pipeline: Load, written: Written, tmp_path: Path) -> None:
    """Spark would take the new batches for those that are there, and pass over them without a word."""
    trial = pipeline(written(PIPELINE.format("")))
    trial.send("numbers", {"n": 0})
    trial.run()
    shutil.rmtree(tmp_path / ".checkpoints")
    trial.send("numbers", {"n": 1})
    with pytest.raises(Sentence, match=r"sink lake: .* was written under another checkpoint \(up to batch 0\)"):
        trial.run()
    assert numbers(trial) == expected(1)
    os.rename(tmp_path / "lake", tmp_path / "before")
    trial.run()
    assert numbers(trial) == expected(2)


def test_two_pipelines_do_not_write_one_lake(pipeline: Load, written: Written, tmp_path: Path) -> None:
    """With as many batches each, their numbers would not tell."""
    trial = pipeline(written(PIPELINE.format("")))
    trial.send("numbers", {"n": 0})
    trial.run(checkpoint=str(tmp_path / "one"))
    os.rename(tmp_path / "lake", tmp_path / "before")
    trial.run(checkpoint=str(tmp_path / "two"))
    trial.send("numbers", {"n": 1})
    with pytest.raises(Sentence, match="was written under another checkpoint"):
        trial.run(checkpoint=str(tmp_path / "one"))
    with (tmp_path / "lake" / OWNER).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(Sentence, match=r"sink lake: another pipeline writes .* at the same time"):
            trial.run(checkpoint=str(tmp_path / "two"))
    trial.run(checkpoint=str(tmp_path / "two"))
    assert numbers(trial) == expected(2)
