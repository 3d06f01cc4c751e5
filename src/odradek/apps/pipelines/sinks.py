"""Where a pipeline writes: Parquet files, a table in Parquet, Delta or Iceberg, a topic, the terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.apps.pipelines import lakes, schemas, tables
from odradek.apps.pipelines.schemas import Schema
from odradek.apps.pipelines.tables import Following, TableWriter
from odradek.apps.terminal.sentence import Sentence
from odradek.values import value

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TOO_LARGE = ("stop", "dead-letter")
SPARE_BYTES = 128
"""What a batch of one record needs beside its contents, and some."""

MODES = ("append", "update", "complete")


@value
class Parquet:
    """Files of a directory, exactly once by Spark's file sink: readers see whole batches only."""

    path: str
    partition_by: tuple[str, ...] = ()
    files: int | None = None
    compact_after: int | None = None

    @property
    def text(self) -> str:
        return f"parquet files in {self.path}"


@value
class LakeTable:
    """A table of Delta Lake or of Apache Iceberg, exactly once by the number of the batch that its own log keeps."""

    format: str
    path: str
    partition_by: tuple[str, ...] = ()
    files: int | None = None

    @property
    def text(self) -> str:
        return f"{self.format} table in {self.path}"


@value
class ParquetTable:
    """A table in Parquet that follows changes: of every key the newest row, without deleted ones."""

    path: str
    key: str = "_key"
    deleted: str = "_deleted"

    @property
    def text(self) -> str:
        return f"parquet table in {self.path}, by {self.key}"


@value
class ToTopic:
    """A topic, at least once: Spark's own sink may write a batch again after a crash."""

    name: str
    schema: Schema
    key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    partitions: int = -1
    deleted: str | None = None
    """The column that says of which rows the value is null: a tombstone."""

    options: tuple[tuple[str, str], ...] = ()
    too_large: str = "stop"
    """What becomes of rows whose records the topic does not take."""

    @property
    def text(self) -> str:
        return f"topic {self.name}, at least once"


@value
class Console:
    """The terminal."""

    rows: int = 20

    @property
    def text(self) -> str:
        return "the terminal"


Sink = Parquet | LakeTable | ParquetTable | ToTopic | Console


def parquet(
    path: str, *, partition_by: Sequence[str] = (), files: int | None = None, compact_after: int | None = None
) -> Parquet:
    """Append rows to files; `files` bounds how many a micro-batch writes, so that they do not get small.

    `compact_after`: a run puts small files together as soon as there are so many of them.
    """
    if compact_after is not None and compact_after < 2:
        raise Sentence("compact_after is a number of files from 2 on.")
    return Parquet(path, tuple(partition_by), files, compact_after)


def delta(path: str, *, partition_by: Sequence[str] = (), files: int | None = None) -> LakeTable:
    """Append rows to a Delta table; its jars are fetched when a pipeline that has one first runs."""
    return LakeTable("delta", path, tuple(partition_by), files)


def iceberg(path: str, *, partition_by: Sequence[str] = (), files: int | None = None) -> LakeTable:
    """Append rows to an Iceberg table in a directory; its jars are fetched when a pipeline that has one first runs."""
    return LakeTable("iceberg", path, tuple(partition_by), files)


def parquet_table(path: str, *, key: str = "_key", deleted: str = "_deleted") -> ParquetTable:
    """Keep a table up to date: rows replace older ones of the same key, and where the column `deleted` is true, delete.

    Every batch writes a new version of the whole table beside the old one and then points to it, so readers never see
    half a batch and a batch that is tried again changes nothing. For tables that are rewritten in seconds.
    """
    return ParquetTable(path, key, deleted)


def topic(
    name: str,
    *,
    value: Schema | None = None,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    partitions: int = -1,
    deleted: str | None = None,
    options: Mapping[str, str] | None = None,
    too_large: str = "stop",
) -> ToTopic:
    """Write rows as records: all columns as a JSON object unless `value` says otherwise; `key` names a column.

    Where the column `deleted` is true, the value is null: a tombstone, by which a compacted topic forgets the key.
    The topic is created if it is not there, with `partitions` (-1: the broker's choice). `options` are Spark's,
    `kafka.*` for its producers: kafka.max.request.size for records of more than a megabyte. `too_large` says what
    becomes of rows whose records are larger than that: they `stop` the run, or each is a `dead-letter`.
    """
    if too_large not in TOO_LARGE:
        raise Sentence(f"too_large may be {' or '.join(TOO_LARGE)}, not {too_large!r}.")
    if deleted is not None and key is None:
        raise Sentence(f"sinks.topic({name!r}, deleted={deleted!r}) needs a key: a tombstone says which key is gone.")
    return ToTopic(
        name,
        value or Schema("json"),
        key,
        tuple(sorted((headers or {}).items())),
        partitions,
        deleted,
        tuple(sorted((options or {}).items())),
        too_large,
    )


def console(rows: int = 20) -> Console:
    """Print the first rows of every batch."""
    return Console(rows)


def writer(
    rows: DataFrame,
    sink: Sink,
    *,
    mode: str,
    bootstrap: str,
    base: str,
    writer_id: str,
    following: Following | None = None,
    limit_bytes: int | None = None,
) -> DataStreamWriter:
    """What Spark will do with a stream of rows; `writer_id` stays the same as long as the checkpoint does, `following`
    is what tables ask about their topics, and of a topic's records those beyond the limit are left out."""
    match sink:
        case Parquet() | LakeTable():
            shaped = rows if sink.files is None else rows.coalesce(sink.files)
            place = located(base, sink.path)
            if isinstance(sink, LakeTable) and sink.format == "iceberg":
                table, rows = lakes.make_iceberg(rows, place, sink.partition_by)
                shaped = rows if sink.files is None else rows.coalesce(sink.files)
                # Rows come in no order of partitions, so a task keeps a file open for each.
                written = shaped.writeStream.outputMode(mode).format("iceberg").option("fanout-enabled", "true")
                return written.option("path", table)
            kind = "parquet" if isinstance(sink, Parquet) else sink.format
            written = shaped.writeStream.outputMode(mode).format(kind).option("path", place)
            if kind == "delta":
                written = written.option("mergeSchema", "true")  # Columns may be added, as in the other sinks.
            return written.partitionBy(*sink.partition_by) if sink.partition_by else written
        case ParquetTable():
            following = following or Following("")
            wanted = (sink.key, sink.deleted, "_timestamp", "_offset", "_partition")
            _need_columns(rows, wanted if following.topic is not None else (*wanted, "_topic"), sink)
            merging = TableWriter(located(base, sink.path), sink.key, sink.deleted, writer_id, following)
            return rows.writeStream.outputMode(mode).foreachBatch(merging)
        case ToTopic():
            records = rows.select(*_record(rows, sink))
            if limit_bytes is not None:
                records = records.where(_record_size(sink, "") <= limit_bytes)
            return (
                records.writeStream.outputMode(mode)
                .format("kafka")
                .option("kafka.bootstrap.servers", bootstrap)
                .option("topic", sink.name)
                .options(**dict(sink.options))
            )
        case Console():
            return rows.writeStream.outputMode(mode).foreachBatch(_Printing(sink.rows))


def too_large(rows: DataFrame, sink: ToTopic, limit_bytes: int) -> DataFrame:
    """The rows whose records are larger than the limit, with the reason."""
    from pyspark.sql import functions as F

    held = rows.withColumn("_record", F.struct(*_record(rows, sink)))
    size = _record_size(sink, "_record.")
    reason = F.concat(F.lit(f"the record for topic {sink.name} is too large: "), size.cast("string"), F.lit(" bytes"))
    return held.where(size > limit_bytes).withColumn(schemas.REASON, reason).drop("_record")


def _record(rows: DataFrame, sink: ToTopic) -> list[Column]:
    return schemas.record_columns(rows, sink.schema, key=sink.key, headers=dict(sink.headers), deleted=sink.deleted)


def _record_size(sink: ToTopic, place: str) -> Column:
    """How large a record is with the batch that it needs."""
    from pyspark.sql import functions as F

    fixed = SPARE_BYTES + sum(len(name.encode()) + len(held.encode()) + 10 for name, held in sink.headers)
    size = F.coalesce(F.length(f"{place}value"), F.lit(0)) + fixed
    return size + F.coalesce(F.length(f"{place}key"), F.lit(0)) if sink.key is not None else size


def read(spark: SparkSession, sink: Parquet | LakeTable | ParquetTable, base: str) -> DataFrame:
    """What is in the sink now."""
    place = located(base, sink.path)
    match sink:
        case ParquetTable():
            return read_table(spark, place)
        case LakeTable():
            return spark.read.format(sink.format).load(place)
    return read_lake(spark, place)


def read_lake(spark: SparkSession, place: str) -> DataFrame:
    """The rows of files that `parquet` writes, with the columns that any of them has.

    Spark alone takes the columns of one file for those of all, so those that were added later are not seen.
    """
    return spark.read.option("mergeSchema", "true").parquet(place)


def read_table(spark: SparkSession, place: str) -> DataFrame:
    """The current version of a table that `parquet_table` keeps."""
    return tables.read_table(spark, place)


def located(base: str, path: str) -> str:
    """A path of a pipeline under the directory for its data, unless it is absolute or names a file system."""
    return path if "://" in path else os.path.join(base, path)


class _Printing:
    def __init__(self, rows: int) -> None:
        self._rows = rows

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        print(f"batch {batch_id}")
        batch.show(self._rows, truncate=False)


def _need_columns(rows: DataFrame, wanted: Sequence[str], sink: Sink) -> None:
    missing = [name for name in wanted if name not in rows.columns]
    if missing:
        raise Sentence(f"{sink.text} needs the columns {', '.join(missing)}, which the dataset does not have.")
