"""A table in Parquet that follows changes by key: versions side by side, a pointer to the newest, and what was deleted.

A deleted key is remembered: the record that made it may be older and still to come, from a partition that is read more
slowly. It is forgotten when every partition has been read up to where it ended after the deletion was read; then
whatever comes was written later.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.apps.pipelines.transforms.latest import FLOOR, INCARNATION, NEWEST, newest
from odradek.apps.terminal.sentence import Sentence
from odradek.values import value

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from odradek.client.cluster import TopicPartition

CURRENT = "_current"
LOCK = "_lock"
VERSION, TOMBSTONES = "version", "tombstones"
KEPT_VERSIONS = 2
"""Versions of a table that stay on disk: the current one, and the one that readers may still be reading."""

ORDER = "_order"
"""A column of the files that readers of the table do not see: what the next batch needs to know of a row."""

COUNTED = "#"
"""How a number begins that stands for an id where brokers tell none."""

MERGED_IN, MERGED_AT = "_merged_in", "_merged_at"
GONE = "_gone"
SORTING = ("_topic", "_partition", "_offset", "_timestamp")

KEPT_S = 3600.0
"""How long deletions are remembered at least: producers' clocks and retries may be off by less than that."""

KEPT_UNKNOWN_S = 7 * 86400.0
"""And how long where nobody knows how far partitions were read, since the checkpoint is not on a local disk."""

Offsets = Mapping["TopicPartition", int]


def _no_ids() -> Mapping[str, str]:
    return {}


def _not_known(_batch: int) -> Offsets | None:
    return None


def _no_ends() -> Offsets:
    return {}


@value
class Following:
    """What a table's writer asks of the run about the topics that it follows."""

    topic: str | None = None
    """The only one, whose name rows need not bear; None if there are several."""

    ids: Callable[[], Mapping[str, str]] = _no_ids
    """The ids of topics by their names: a topic that was made again has another."""

    positions: Callable[[int], Offsets | None] = _not_known
    """Up to where a batch reads."""

    ends: Callable[[], Offsets] = _no_ends
    """Where partitions ended when somebody last asked."""


class TableWriter:
    """Merges batches into a table of the local disk, one version after the other."""

    def __init__(self, place: str, key: str, deleted: str, writer_id: str, following: Following | None = None) -> None:
        if "://" in place:
            raise Sentence(f"sinks.parquet_table keeps its table on a local disk, not in {place}; see sinks.delta.")
        self._place = Path(place)
        self._key = key
        self._deleted = deleted
        self._writer_id = writer_id
        self._following = following or Following()
        self._written = ""
        """The version that this writer wrote last."""

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        with self._alone():
            self._merge(batch, batch_id)

    def _merge(self, batch: DataFrame, batch_id: int) -> None:
        current = read_current(self._place)
        if self._written and (current is None or current["writer"] != self._writer_id):
            raise Sentence(f"another pipeline writes the table {self._place} at the same time: give each its own.")
        if current is not None and current["writer"] == self._writer_id and current["batch"] >= batch_id:
            return  # The crash came after this batch was merged and before Spark noted that it was.
        number = 0 if current is None else int(current["version"].rpartition("-")[2]) + 1
        fresh = self._next(current or {}, number, batch_id)
        merged = self._merged(batch, current, fresh, number)
        unnamed = () if "_topic" in batch.columns else ("_topic",)
        shown = [name for name in merged.columns if name not in (GONE, self._deleted, *unnamed)]
        rows = merged.select(*[_column(name) for name in (*shown, GONE)])
        fresh["columns"] = rows.drop(GONE).schema.jsonValue()
        self._write(rows, number)
        self._point_to(fresh)
        self._written = fresh["version"]
        for old in (each for kind in (VERSION, TOMBSTONES) for each in self._place.glob(f"{kind}-*")):
            if int(old.name.rpartition("-")[2]) <= number - KEPT_VERSIONS:
                shutil.rmtree(old, ignore_errors=True)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Two pipelines that write one table have two checkpoints, so nothing else keeps them apart."""
        self._place.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._place / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise Sentence(
                f"another pipeline writes the table {self._place} at the same time: give each its own."
            ) from None
        finally:
            os.close(lock)

    def _next(self, current: dict[str, Any], number: int, batch_id: int) -> dict[str, Any]:
        """What the pointer will say, but for the columns."""
        goes_on = current.get("writer") == self._writer_id
        before: dict[str, list[str]] = current.get("topics", {})
        topics = incarnations(before, self._following.ids())
        recreated = any(len(topics[name]) > len(ids) for name, ids in before.items())
        # Ends of a topic that is no more will never be reached, and after a reset everything is read again.
        held = current.get("fence") if goes_on and not recreated else None
        fence, passed = next_fence(
            held,
            int(current.get("passed", -1)) if goes_on else -1,
            number=number,
            positions=self._following.positions(batch_id),
            ends=self._following.ends(),
        )
        return {
            "version": f"{VERSION}-{number}",
            "writer": self._writer_id,
            "batch": batch_id,
            "topics": topics,
            "fence": fence,
            "passed": passed,
        }

    def _merged(
        self, batch: DataFrame, current: dict[str, Any] | None, fresh: dict[str, Any], number: int
    ) -> DataFrame:
        """One row a key with its place in the order, and whether the key is gone."""
        from pyspark.sql import functions as F

        numbers = {name: len(ids) - 1 for name, ids in fresh["topics"].items()}
        rows = self._with_topic(batch).withColumn(self._deleted, F.coalesce(F.col(self._deleted), F.lit(False)))
        rows = rows.withColumn(INCARNATION, _number_of(numbers))
        for name, kind in ((FLOOR, "timestamp"), (NEWEST, "timestamp"), (MERGED_IN, "int"), (MERGED_AT, "double")):
            rows = rows.withColumn(name, F.lit(None).cast(kind))
        if current is not None:
            for kind, gone in ((VERSION, False), (TOMBSTONES, True)):
                before = self._before(batch.sparkSession, current, kind)
                if before is not None:
                    rows = before.withColumn(self._deleted, F.lit(gone)).unionByName(rows, allowMissingColumns=True)
        now = time.time()
        merged = (
            newest(rows, key=self._key)
            .withColumn(GONE, F.col(self._deleted))
            .withColumn(MERGED_IN, F.coalesce(F.col(MERGED_IN), F.lit(number)))
            .withColumn(MERGED_AT, F.coalesce(F.col(MERGED_AT), F.lit(now)))
        )
        known = fresh["fence"] is not None or fresh["passed"] >= 0
        young = F.col(MERGED_AT) > now - (KEPT_S if known else KEPT_UNKNOWN_S)
        needed = (F.col(MERGED_IN) > F.lit(fresh["passed"])) if known else F.lit(False)
        merged = merged.where(~F.col(GONE) | young | needed)
        order = F.struct(INCARNATION, FLOOR, NEWEST, MERGED_IN, MERGED_AT).alias(ORDER)
        kept = (self._key, self._deleted, GONE, *SORTING)
        columns = [
            # Nothing is kept of what was deleted but that it was.
            _column(name) if name in kept else F.when(~F.col(GONE), _column(name)).alias(name)
            for name in merged.columns
            if name not in (INCARNATION, FLOOR, NEWEST, MERGED_IN, MERGED_AT)
        ]
        return merged.select(*columns, order)

    def _before(self, spark: SparkSession, current: dict[str, Any], kind: str) -> DataFrame | None:
        """Rows of the version so far or keys that were deleted, their place in the order as columns."""
        from pyspark.sql import functions as F

        place = self._place / f"{kind}-{current['version'].rpartition('-')[2]}"
        if not any(place.glob("*.parquet")):
            return None
        rows = self._with_topic(spark.read.parquet(str(place)))
        if ORDER not in rows.columns:  # Of a version before there was an order.
            nothing = F.lit(None)
            return (
                rows.withColumn(INCARNATION, F.lit(0))
                .withColumn(FLOOR, nothing.cast("timestamp"))
                .withColumn(NEWEST, F.col("_timestamp"))
                .withColumn(MERGED_IN, nothing.cast("int"))
                .withColumn(MERGED_AT, nothing.cast("double"))
            )
        return rows.select("*", f"{ORDER}.*").drop(ORDER)

    def _with_topic(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        name = F.lit(self._following.topic or "")
        return rows.withColumn("_topic", F.coalesce(F.col("_topic"), name) if "_topic" in rows.columns else name)

    def _write(self, rows: DataFrame, number: int) -> None:
        """Both halves in one go, so that the batch is computed once; nobody looks for them before the pointer moves."""
        writing = self._place / "writing"
        shutil.rmtree(writing, ignore_errors=True)
        rows.write.partitionBy(GONE).parquet(str(writing))
        for kind, gone in ((VERSION, "false"), (TOMBSTONES, "true")):
            there = self._place / f"{kind}-{number}"
            shutil.rmtree(there, ignore_errors=True)  # What a crash in the middle of it left behind.
            half = writing / f"{GONE}={gone}"
            if half.is_dir():
                half.rename(there)
            else:
                there.mkdir()
        shutil.rmtree(writing)

    def _point_to(self, current: dict[str, object]) -> None:
        fresh = self._place / f"{CURRENT}.new"
        with fresh.open("w") as file:
            json.dump(current, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._place / CURRENT)


def next_fence(
    held: dict[str, Any] | None, passed: int, *, number: int, positions: Offsets | None, ends: Offsets
) -> tuple[dict[str, Any] | None, int]:
    """Where every partition must have been read up to before deletions of versions so far may be forgotten, and of
    which versions they may be forgotten already. At most one such line is drawn at a time.

    The ends are good for a line only if they were asked for after what this batch reads was written: if they are not
    below where it ends. A partition that is not read any more holds nothing back.
    """
    if positions is None:
        return None, passed
    at = {str(partition): offset for partition, offset in positions.items()}
    if held is not None:
        if any(at.get(partition, end) < end for partition, end in held["ends"].items()):
            return held, passed
        passed = max(passed, int(held["upto"]))
    asked = {str(partition): end for partition, end in ends.items() if str(partition) in at}
    if not at or any(asked.get(partition, -1) < offset for partition, offset in at.items()):
        return None, passed
    return {"upto": number, "ends": asked}, passed


def incarnations(before: Mapping[str, list[str]], ids: Mapping[str, str]) -> dict[str, list[str]]:
    """The ids that topics of a name had, one after the other. One that brokers had no id for gets it when they do."""
    known = {name: list(held) for name, held in before.items()}
    for name, topic_id in ids.items():
        held = known.setdefault(name, [topic_id])
        if held[-1].startswith(COUNTED) and not topic_id.startswith(COUNTED):
            held[-1] = topic_id
        if topic_id not in held:
            held.append(topic_id)
    return known


def read_table(spark: SparkSession, place: str) -> DataFrame:
    """The current version of a table."""
    current = read_current(Path(place))
    if current is None:
        raise Sentence(f"there is no table in {place} yet: run the pipeline that keeps it.")
    files = Path(place, current["version"])
    if "columns" in current and not any(files.glob("*.parquet")):
        from pyspark.sql.types import StructType

        return spark.createDataFrame([], StructType.fromJson(current["columns"])).drop(ORDER)
    return spark.read.parquet(str(files)).drop(ORDER)


def read_current(place: Path) -> dict[str, Any] | None:
    """What the pointer of a table says; None where there is no table."""
    try:
        found: dict[str, Any] = json.loads((place / CURRENT).read_text())
    except FileNotFoundError:
        return None
    return found


def _number_of(numbers: Mapping[str, int]) -> Column:
    """Which of the topics of its name a row comes from."""
    from pyspark.sql import functions as F

    later = {name: number for name, number in numbers.items() if number}
    found = F.lit(0)
    for name, number in later.items():
        found = F.when(F.col("_topic") == name, F.lit(number)).otherwise(found)
    return found


def _column(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(f"`{name}`")
