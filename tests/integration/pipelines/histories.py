"""Random histories of a pipeline against a model in plain Python: `python -m tests.integration.pipelines.histories`.

A history draws records (upserts, deletions, bad ones; clocks that go back), topics of a pattern, added partitions,
topics that are made again, columns that come and go, and a crash between any two of the commits of a batch. In the end
every sink must hold what the model says. As a program it has a session of its own, which can have Delta and Iceberg.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.pipelines.order import newest_of_each

from odradek.apps.pipelines.tables import TableWriter
from odradek.apps.pipelines.trial import Trial
from odradek.apps.terminal.sentence import Sentence
from odradek.client.admin import Admin
from odradek.clients import connect
from odradek.pipelines import Pipeline, schemas, sinks, sources
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = "abcdefgh"
TOPICS = 3
STEPS = 4
RECORDS_A_STEP = 14
PATIENCE_S = 60.0
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""For a dozen rows a batch, compiling a plan costs more than running it."""

TABLE_STEPS = ("_write", "_point_to")
"""Before and behind each of these, a table's writer may be killed."""


class Killed(Exception):
    """What a query dies of where a crash is drawn."""


@dataclass(frozen=True)
class Sent:
    """A record as it was sent, and where it went."""

    number: int
    key: str
    kind: str
    topic: str
    incarnation: int
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def extra(self) -> str:
        return f"x{self.number}"


class History:
    """One, on topics, sinks and a checkpoint of its own."""

    def __init__(
        self,
        seed: int,
        spark: SparkSession,
        bootstrap: str,
        directory: Path,
        *,
        formats: Sequence[str] = (),
        steps: int = STEPS,
    ) -> None:
        self._name = f"history-{seed}"
        self._steps = steps
        self._draw = random.Random(seed)
        self._formats = formats
        self._spark = spark
        self._bootstrap = bootstrap
        self._directory = directory
        self._partitions: dict[str, int] = {}
        self._incarnations: dict[str, int] = defaultdict(int)
        self._sent: list[Sent] = []
        self._skipped: set[int] = set()
        self._choice: str | None = None
        self._with_extra = False
        self._began_ms = int(time.time() * 1000) - 60_000
        self.told: list[str] = []
        """What happened, for whoever looks into one that went wrong."""

    def play(self) -> None:
        self._add_topic()
        clean = True
        for step in range(self._steps):
            self._send()
            if step and self._draw.random() < 0.8:
                if not clean:  # What was begun is done again with the topics and columns it was begun with.
                    self._run()
                self._change()
            clean = self._run_and_crash()
        self._send()
        self._run()

    def check(self) -> None:
        good = [each for each in self._sent if each.kind != "bad" and each.number not in self._skipped]
        trial = self._trial()
        upserts = [each.number for each in good if each.kind == "upsert"]
        for sink in ("lake", *self._formats):
            rows = trial.rows(sink)
            assert sorted(row["n"] for row in rows if row["n"] is not None) == sorted(upserts), sink
            gone = [(e.topic, e.partition, e.offset) for e in good if e.kind == "deletion"]
            found = [(r["_topic"], r.get("part", r.get("_partition")), r["_offset"]) for r in rows if r["n"] is None]
            assert sorted(found) == sorted(gone), sink
            assert all(row.get("extra") in (None, f"x{row['n']}") for row in rows), sink
        table = {row["_key"]: row["n"] for row in trial.rows("table")}
        newest = newest_of_each(good).values()
        assert table == {each.key: each.number for each in newest if each.kind == "upsert"}
        records = [(key or b"", value) for key, value in trial.records(f"{self._name}-out")]
        assert {json.loads(value)["n"] for _, value in records if value is not None} == set(upserts), "at least once"
        assert {key.decode() for key, value in records if value is None} == {
            each.key for each in good if each.kind == "deletion"
        }
        bad = {b"bad %d" % e.number for e in self._sent if e.kind == "bad" and e.number not in self._skipped}
        assert {letter.value for letter in trial.dead_letters()} == bad
        ends: dict[tuple[str, int], int] = {}
        for each in self._sent:
            if each.incarnation == self._incarnations[each.topic]:
                ends[each.topic, each.partition] = max(ends.get((each.topic, each.partition), 0), each.offset + 1)
        committed = {(at.topic, at.partition): offset for at, offset in trial.committed().items()}
        assert {at: committed.get(at) for at in ends} == ends

    def _pipeline(self) -> Pipeline:
        pipeline = Pipeline(self._name)
        pipeline.source(
            "changes",
            sources.topic(
                pattern=f"{self._name}-t[0-9]",
                value=schemas.json("n bigint, extra string", required=["n"]),
                tombstones="keep",
                max_per_trigger=self._draw.choice((None, None, 7)),
            ),
        )
        columns = ["_key", "_deleted", "_topic", "_partition", "_offset", "_timestamp", "n"]

        def rows(changes: DataFrame) -> DataFrame:
            return changes.select(*columns, *(["extra"] if self._with_extra else []))

        pipeline.add_dataset("rows", rows, ["changes"])
        pipeline.sink("lake", "rows", sinks.parquet("lake", files=1))
        pipeline.sink("table", "rows", sinks.parquet_table("table"))
        pipeline.sink("out", "rows", sinks.topic(f"{self._name}-out", key="_key", deleted="_deleted", partitions=1))
        # Iceberg keeps some names for itself.
        pipeline.add_dataset(
            "renamed", lambda rows: rows.drop("_deleted").withColumnRenamed("_partition", "part"), ["rows"]
        )
        for name in self._formats:
            pipeline.sink(name, "renamed", getattr(sinks, name)(f"lakes/{name}"))
        return pipeline

    def _trial(self) -> Trial:
        return Trial(self._pipeline(), self._spark, self._bootstrap, self._directory)

    def _run(self) -> None:
        if self._choice:
            with pytest.raises(Sentence, match="deleted and recreated"):
                self._trial().run()
        self.told.append(f"run, {self._choice}")
        self._trial().run(topic_recreated=self._choice)
        self._choice = None

    def _run_and_crash(self) -> bool:
        """Whether all that it had begun was done in the end."""
        before = {query: newest_commit(query) for query in self._queries()}
        if self._choice is None and self._draw.random() < 0.5:
            step, behind, calls = self._draw.choice(TABLE_STEPS), self._draw.random() < 0.5, self._draw.randrange(2)
            with killing_tables(step, behind=behind, passing=calls) as killed:
                try:
                    self._run()
                except Sentence:
                    if not killed:
                        raise
            if killed:
                self.told.append(f"killed {'behind' if behind else 'before'} {step}")
                return False
        else:
            self._run()
        clean = True
        for query in self._queries():
            # Only a batch of this run: what was begun after an earlier one's commit shows that it was there.
            if self._draw.random() < 0.5 and newest_commit(query) > before.get(query, -1):
                self._take_back(query)
                clean = False
        return clean

    def _queries(self) -> list[Path]:
        return sorted(each for each in (self._directory / ".checkpoints" / self._name).glob("*-*") if each.is_dir())

    def _take_back(self, query: Path) -> None:
        """The disk as it was before the last commits of a query's last batch."""
        last = newest_commit(query)
        log = self._directory / "lake" / "_spark_metadata" / str(last)
        parts = [query / "commits" / str(last)]
        if query.name == "sink-lake" and log.exists() and self._draw.random() < 0.5:
            parts.append(log)
        for part in parts:
            part.unlink()
            part.with_name(f".{part.name}.crc").unlink(missing_ok=True)
        self.told.append(f"{query.name}: as before {' and '.join(part.parent.name for part in parts)} {last}")

    def _change(self) -> None:
        changes = [self._add_partition, self._recreate, self._toggle_extra]
        if len(self._partitions) < TOPICS:
            changes.append(self._add_topic)
        self._draw.choice(changes)()

    def _add_topic(self) -> None:
        name = f"{self._name}-t{len(self._partitions)}"
        self._partitions[name] = self._draw.randint(1, 2)
        self.told.append(f"topic {name}")
        self._ask(lambda admin: admin.create_topic(name, partitions=self._partitions[name]))

    def _add_partition(self) -> None:
        name = self._draw.choice(sorted(self._partitions))
        self._partitions[name] += 1
        self.told.append(f"partitions of {name}: {self._partitions[name]}")
        self._ask(lambda admin: admin.create_partitions({name: self._partitions[name]}))

    def _toggle_extra(self) -> None:
        self._with_extra = not self._with_extra
        self.told.append(f"extra: {self._with_extra}")

    def _recreate(self) -> None:
        self._run()  # What nobody has read of the old one nobody will.
        name = self._draw.choice(sorted(self._partitions))
        self._partitions[name] = self._draw.randint(1, 2)
        self._incarnations[name] += 1
        self._choice = self._draw.choice(("start-over", "skip"))
        self.told.append(f"{name} again, {self._choice}")

        async def again(admin: Admin) -> None:
            await admin.delete_topics([name])
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    try:
                        await admin.create_topic(name, partitions=self._partitions[name])
                        return
                    except KafkaError as failure:
                        if failure.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                            raise
                        await asyncio.sleep(0.05)

        self._ask(again)
        self._send()
        if self._choice == "skip":
            incarnation = self._incarnations[name]
            self._skipped |= {e.number for e in self._sent if (e.topic, e.incarnation) == (name, incarnation)}

    def _ask(self, question: Callable[[Admin], Awaitable[Any]]) -> None:
        async def asked() -> None:
            async with connect(self._bootstrap).admin() as admin:
                await question(admin)

        asyncio.run(asked())

    def _send(self) -> None:
        drawn = []
        for number in range(len(self._sent), len(self._sent) + self._draw.randrange(RECORDS_A_STEP)):
            topic = self._draw.choice(sorted(self._partitions))
            kind = self._draw.choices(("upsert", "deletion", "bad"), (12, 6, 1))[0]
            at_ms = self._began_ms + self._draw.randrange(8)
            partition = self._draw.randrange(self._partitions[topic])
            drawn.append((number, self._draw.choice(KEYS), kind, topic, partition, at_ms))

        async def write() -> list[int]:
            async with connect(self._bootstrap).producer() as producer:
                receipts = []
                for number, key, kind, topic, partition, at_ms in drawn:
                    value = {
                        "upsert": json.dumps({"n": number, "extra": f"x{number}"}).encode(),
                        "deletion": None,
                        "bad": b"bad %d" % number,
                    }[kind]
                    receipts.append(
                        await producer.submit(topic, value, key=key.encode(), partition=partition, timestamp_ms=at_ms)
                    )
                return [receipt.offset for receipt in await asyncio.gather(*receipts)]

        for (number, key, kind, topic, partition, at_ms), offset in zip(drawn, asyncio.run(write()), strict=True):
            self._sent.append(Sent(number, key, kind, topic, self._incarnations[topic], partition, offset, at_ms))


def newest_commit(query: Path) -> int:
    return max((int(each.name) for each in (query / "commits").glob("[0-9]*") if each.name.isdecimal()), default=-1)


@contextmanager
def killing_tables(step: str, *, behind: bool, passing: int) -> Iterator[list[str]]:
    """Lets a table's writer pass a step so often, then kills it before or behind it; what was killed."""
    real = getattr(TableWriter, step)
    killed: list[str] = []
    passed = 0

    def dying(writer: TableWriter, *arguments: Any) -> None:
        nonlocal passed
        passed += 1
        if passed <= passing:
            real(writer, *arguments)
            return
        if behind:
            real(writer, *arguments)
        killed.append(step)
        raise Killed(step)

    setattr(TableWriter, step, dying)
    try:
        yield killed
    finally:
        setattr(TableWriter, step, real)


def main() -> None:
    from odradek.apps.pipelines.plugin import MASTER, open_test_session
    from odradek.apps.pipelines.session import stop_session
    from odradek.testing import running_node

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--formats", nargs="*", default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, running_node() as node:
        spark = open_test_session(MASTER, Path(directory, "spark"), options.formats)
        try:
            for seed in range(options.seed, options.seed + options.count):
                play(seed, spark, node.bootstrap_servers, Path(directory, str(seed)), formats=options.formats)
                print(f"seed {seed}: as the model says", flush=True)
        finally:
            stop_session(spark)


def play(
    seed: int,
    spark: SparkSession,
    bootstrap: str,
    directory: Path,
    *,
    formats: Sequence[str] = (),
    steps: int = STEPS,
) -> None:
    """One history to its end, and the comparison."""
    history = History(seed, spark, bootstrap, directory, formats=formats, steps=steps)
    before = {name: spark.conf.get(name, None) for name in INTERPRETED}
    for name, setting in INTERPRETED.items():
        spark.conf.set(name, setting)
    try:
        history.play()
        history.check()
    except BaseException:
        print(f"seed {seed}:", *history.told, sep="\n  ")
        raise
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)


if __name__ == "__main__":
    main()
