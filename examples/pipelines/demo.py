"""The orders pipeline on a cluster of three, and kill -9 of a partition's leader on the way: part of `make demo`.

It starts three brokers, writes orders with a seed, runs the pipeline as a user would, and kills the leader of a
partition while it reads. In the end the lake is compared with what plain Python makes of the same records. Without Java
it says so and ends well: everything else of Odradek does without.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import data

from odradek.apps.pipelines.java import find_java
from odradek.apps.terminal.sentence import Sentence
from odradek.clients import connect
from odradek.testing.cluster import running_cluster

COUNT = 20_000
SEED = 7
HERE = Path(__file__).parent


def main() -> int:
    try:
        find_java(os.environ)
    except Sentence as missing:
        say(f"left out: {missing}")
        return 0
    title("The orders pipeline on a cluster of three")
    with running_cluster(brokers=3) as cluster, tempfile.TemporaryDirectory(prefix="odradek-lake-") as lake:
        bootstrap = cluster.bootstrap_servers
        records = list(data.orders(SEED, COUNT))
        asyncio.run(prepare(bootstrap))
        count = asyncio.run(data.send(bootstrap, iter(records)))
        say(f"{count:,} records written, three replicas each (seed {SEED})")
        with pipeline(bootstrap, lake) as run:
            leader = asyncio.run(leader_of(bootstrap, "orders", 0))
            wait_for_a_batch(Path(lake), run)
            cluster.nodes[leader].kill()
            say(f"kill -9 of broker {leader}, which led orders-0, after the first batch")
            told, _ = run.communicate(timeout=600)
        for line in told.splitlines():
            say(line)
        if run.returncode:
            return run.returncode
        whole = compare(records, Path(lake))
    return 0 if whole else 1


async def prepare(bootstrap: str) -> None:
    async with connect(bootstrap).admin() as admin:
        for topic in ("orders", "customers", "revenue", "orders.dead-letters"):
            await admin.create_topic(topic, partitions=3, replication_factor=3)


async def leader_of(bootstrap: str, topic: str, partition: int) -> int:
    async with connect(bootstrap).admin() as admin:
        described = (await admin.describe_topics([topic]))[topic]
    if isinstance(described, Exception):
        raise described
    return described.partitions[partition].leader


@contextmanager
def pipeline(bootstrap: str, lake: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "odradek", "pipeline", "run", str(HERE / "orders.py")]
    command += ["--bootstrap", bootstrap, "--data", lake, "--available-now"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield running
    finally:
        if running.poll() is None:
            running.kill()
            running.wait()


def wait_for_a_batch(lake: Path, run: subprocess.Popen[str]) -> None:
    commits = lake / ".checkpoints" / "orders" / "dead-letters-orders" / "offsets"
    while run.poll() is None and not any(commits.glob("[0-9]*")):
        time.sleep(0.05)


def compare(records: list[data.Record], lake: Path) -> bool:
    """Whether the lake holds every good order once, and nothing else."""
    import pyarrow.parquet as parquet

    expected = sorted(good_orders(records))
    listed = (lake / "lake" / "orders" / "_spark_metadata").glob("[0-9]*")
    files = [json.loads(line)["path"] for log in listed for line in log.read_text().splitlines()[1:]]
    found = sorted(
        name
        for file in dict.fromkeys(files)
        for name in parquet.read_table(file.removeprefix("file://"))["order"].to_pylist()
    )
    say(f"the lake holds {len(found):,} orders; plain Python makes {len(expected):,} of the same records")
    say("they are the same" if found == expected else "THEY ARE NOT THE SAME")
    return found == expected


def good_orders(records: list[data.Record]) -> Iterator[str]:
    for topic, _, value in records:
        if topic == "orders" and value is not None:
            try:
                order = json.loads(value)
            except ValueError:
                continue
            if order["order"] is not None and not isinstance(order["amount"], str):
                yield order["order"]


def title(text: str) -> None:
    print(f"\n{text}\n{'─' * len(text)}", flush=True)


def say(text: str) -> None:
    print(f"  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
