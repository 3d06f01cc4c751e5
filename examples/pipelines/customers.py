"""Change data capture: a compacted topic of customers, kept as a table in the lake.

A record is the newest state of its key, a null value deletes it. The table always holds whole batches; a reader gets
the newest with `sinks.read_table(spark, "lake/customers")`.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from odradek.pipelines import Pipeline, schemas, sinks, sources

pipeline = Pipeline("customers")
pipeline.source(
    "changes",
    sources.topic(
        "customers",
        value=schemas.json("name string, country string", required=["name"]),
        key_required=True,
        tombstones="keep",
    ),
)


@pipeline.dataset
def customers(changes: DataFrame) -> DataFrame:
    """The columns of the table, and those that say which change is the newest."""
    return changes.select("_key", "name", "country", "_deleted", "_timestamp", "_partition", "_offset")


pipeline.sink("table", customers, sinks.parquet_table("lake/customers"))

if __name__ == "__main__":
    pipeline.main()
