"""Table formats that Spark does not bring: which jars and settings they need, and what they do otherwise than files."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from odradek.values import value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXTENSIONS = "spark.sql.extensions"
ICEBERG_NAMES = ("_file", "_pos", "_deleted", "_spec_id", "_partition")
"""Columns that Iceberg adds to every table that is read."""

ICEBERG_CATALOG = "odradek_iceberg"


@value
class Format:
    """What a session needs in order to write a format. Settings of a session cannot be changed once it runs."""

    package: str
    jars: tuple[str, ...]
    """What is fetched, as Ivy names the files."""

    extension: str
    settings: tuple[tuple[str, str], ...] = ()


FORMATS = {
    "delta": Format(
        "io.delta:delta-spark_2.13:4.0.0",
        ("io.delta_delta-spark_2.13-4.0.0.jar", "io.delta_delta-storage-4.0.0.jar"),
        "io.delta.sql.DeltaSparkSessionExtension",
        (
            ("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"),
            # Its own 50 tasks for every look at a table's log are for tables of millions of files.
            ("spark.databricks.delta.snapshotPartitions", "2"),
        ),
    ),
    "iceberg": Format(
        "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",
        ("org.apache.iceberg_iceberg-spark-runtime-4.0_2.13-1.10.0.jar",),
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    ),
}


def settings_of(formats: Iterable[str]) -> dict[str, str]:
    """What Spark is told at its start for these formats."""
    found = {key: setting for name in formats for key, setting in FORMATS[name].settings}
    extensions = [FORMATS[name].extension for name in formats]
    return {**found, EXTENSIONS: ",".join(extensions)} if extensions else found


def make_iceberg(rows: DataFrame, place: str, partition_by: Sequence[str]) -> tuple[str, DataFrame]:
    """Make the table unless it is there, as Iceberg's stream goes to tables that exist only; its address, and the rows
    with all columns that it has. Columns that are new are added to it."""
    from pyspark.sql import functions as F

    spark = rows.sparkSession
    table = iceberg_table(spark, place)
    if not spark.catalog.tableExists(table):
        empty = spark.createDataFrame([], rows.schema).writeTo(table).using("iceberg")
        if partition_by:
            empty = empty.partitionedBy(*partition_by)
        empty.create()
    held = spark.table(table).schema
    added = [each for each in rows.schema if each.name not in held.names]
    if added:
        fields = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in added)
        spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({fields})")
    for each in held:
        if each.name not in rows.columns:
            rows = rows.withColumn(each.name, F.lit(None).cast(each.dataType))
    return _absolute(place), rows


def iceberg_table(spark: SparkSession, place: str) -> str:
    """The name under which a session knows the table in a directory: that of a catalog of the directory above."""
    above, _, name = _absolute(place).rpartition("/")
    catalog = f"{ICEBERG_CATALOG}_{zlib.crc32(above.encode()):08x}"
    spark.conf.set(f"spark.sql.catalog.{catalog}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.{catalog}.type", "hadoop")
    spark.conf.set(f"spark.sql.catalog.{catalog}.warehouse", above)
    return f"{catalog}.`{name}`"


def compact(spark: SparkSession, form: str, place: str) -> tuple[int, int]:
    """Put small files together by the format's own means; how many there were of those, and how many they became."""
    if form == "delta":
        done = spark.sql(f"OPTIMIZE delta.`{place}`").collect()[0].metrics
        return int(done.numFilesRemoved), int(done.numFilesAdded)
    table = iceberg_table(spark, place)
    catalog = table.partition(".")[0]
    name = _absolute(place).rpartition("/")[2]
    options = "options => map('min-input-files', '2')"  # Its own five a partition would leave most lakes as they are.
    row = spark.sql(f"CALL {catalog}.system.rewrite_data_files(table => '`{name}`', {options})").collect()[0]
    return int(row.rewritten_data_files_count), int(row.added_data_files_count)


def _absolute(place: str) -> str:
    return place.rstrip("/") if "://" in place else os.path.abspath(place)
