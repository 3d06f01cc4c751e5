"""A disk that is full under a pipeline: `unshare --mount python -m tests.integration.pipelines.full_disk WHAT DIR`.

WHAT is `lake`, `table` or `checkpoint`: what is on a small file system in memory, filled but for a little. Prints what
the pipeline said, and ends with 1 if a promise was broken.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

from tests.integration.pipelines.driver import Driver

from odradek.apps.pipelines.compaction import read_log
from odradek.apps.pipelines.tables import read_current
from odradek.apps.pipelines.trial import Trial
from odradek.testing import running_node

DISK_MIB = 48
LEFT_BYTES = {"lake": 2 << 20, "table": 3 << 20, "checkpoint": 40 << 10}
RECORDS = 6_000
RECORD_BYTES = 1_000
"""Random, so that they stay as large in Parquet."""

PIPELINE = """
from odradek.pipelines import Pipeline, schemas, sinks, sources

pipeline = Pipeline("numbers")
pipeline.source("numbers", sources.topic("numbers", value=schemas.raw(), key=schemas.raw(), max_per_trigger=1500))

@pipeline.dataset
def rows(numbers):
    return numbers.select("value")

pipeline.sink("lake", rows, sinks.parquet("lake"))
"""
TABLE = PIPELINE.replace('select("value")', 'withColumn("_key", F.sha1("value")).drop("_headers")').replace(
    'sinks.parquet("lake")', 'sinks.parquet_table("table")'
)
TABLE = "from pyspark.sql import functions as F\n" + TABLE


def main(what: str, directory: Path) -> int:
    file = directory / "pipeline.py"
    file.write_text(TABLE if what == "table" else PIPELINE)
    disk = directory / {"lake": "lake", "table": "table", "checkpoint": ".checkpoints"}[what]
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(disk)], check=True)
    draw = random.Random(7)
    values = [draw.randbytes(RECORD_BYTES) for _ in range(RECORDS)]
    with running_node() as node:
        Trial(str(file), None, node.bootstrap_servers, directory).send("numbers", *values)  # type: ignore[arg-type]
        ballast = fill(disk, LEFT_BYTES[what])
        first = Driver(file, directory, "--bootstrap", node.bootstrap_servers, "--available-now", "--quiet")
        code = first.wait()
        told = [line for line in first.told().splitlines() if line]
        print(code, *told, sep="\n")
        if code == 0 or len(told) != 1 or "the disk is full: free some space" not in told[0]:
            print("that is not one sentence which says what to do")
            return 1
        ballast.unlink()
        second = Driver(file, directory, "--bootstrap", node.bootstrap_servers, "--available-now", "--quiet")
        if second.wait() != 0:
            print("it did not go on:", second.told())
            return 1
    found = held_in_table(disk) if what == "table" else held(directory / "lake")
    if sorted(found) != sorted(values):
        print("the lake is not what was sent")
        return 1
    return 0


def fill(disk: Path, left_bytes: int) -> Path:
    """A file that takes all of the disk but so much."""
    free = os.statvfs(disk)
    ballast = disk / "ballast"
    with ballast.open("wb") as output:
        os.posix_fallocate(output.fileno(), 0, free.f_bavail * free.f_frsize - left_bytes)
    return ballast


def held(lake: Path) -> list[bytes]:
    """The rows of the files that Spark's log lists, read without Spark."""
    from pyarrow import parquet  # type: ignore[import-untyped]

    files = [each["path"].removeprefix("file://") for part in read_log(lake).entries() for each in part]
    return [value for file in files for value in parquet.read_table(file)["value"].to_pylist()]


def held_in_table(table: Path) -> list[bytes]:
    """The rows of the version that the pointer names, read without Spark."""
    from pyarrow import parquet

    current = read_current(table)
    assert current is not None
    files = (table / current["version"]).glob("*.parquet")
    return [value for file in files for value in parquet.read_table(file)["value"].to_pylist()]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], Path(sys.argv[2])))
