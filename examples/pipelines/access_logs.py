"""A web server's log, keyed by client address: lines become rows, and requests are counted per client and minute.

Addresses are not equally busy, and all records of a key are in one partition: one client can keep one task busy while
the others wait. So counting goes in two steps: first by client and a salt that splits every client into eight, spread
over all tasks; then the few sums of each client together. `skew` shows how uneven it is.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.pipelines import Pipeline, schemas, sinks, sources, transforms

LINE = r'^(\S+) \S+ \S+ \[([^\]]+)\] "(\S+) (\S+) [^"]*" (\d{3}) (\d+|-)'
SALTS = 8

pipeline = Pipeline("access-logs")
pipeline.source("log", sources.topic("access-log", value=schemas.text(), key_required=True))


@pipeline.dataset
def hits(log: DataFrame) -> DataFrame:
    """One row a line that can be read."""
    return (
        log.where(F.col("value").rlike(LINE))
        .withColumn("at", F.to_timestamp(F.regexp_extract("value", LINE, 2), "dd/MMM/yyyy:HH:mm:ss Z"))
        .select(
            F.regexp_extract("value", LINE, 1).alias("client"),
            "at",
            F.regexp_extract("value", LINE, 4).alias("path"),
            F.regexp_extract("value", LINE, 5).cast("int").alias("status"),
            "_partition",
            "_offset",
        )
    )


@pipeline.dataset
def unreadable(log: DataFrame) -> DataFrame:
    """The other lines, so that none is dropped silently."""
    return log.where(~F.coalesce(F.col("value").rlike(LINE), F.lit(False))).select("value", "_partition", "_offset")


@pipeline.dataset
def per_minute(hits: DataFrame) -> DataFrame:
    """Requests of each client in each minute, counted in two steps."""
    minute = F.window("at", "1 minute")
    parts = (
        transforms.salted(hits.withWatermark("at", "5 minutes"), "client", SALTS)
        .groupBy(minute, "client", transforms.SALT)
        .agg(F.count(F.lit(1)).alias("requests"))
    )
    return (
        parts.groupBy(F.window(F.window_time("window"), "1 minute"), "client")
        .agg(F.sum("requests").alias("requests"))
        .select("client", F.col("window.start").alias("minute"), "requests")
    )


pipeline.sink("hits", hits, sinks.parquet("lake/hits"))
pipeline.sink("unreadable", unreadable, sinks.parquet("lake/unreadable", files=1))
pipeline.sink("per_minute", per_minute, sinks.parquet("lake/requests_per_minute", files=1))


def skew(hits: DataFrame) -> tuple[DataFrame, DataFrame]:
    """How uneven it is, over partitions and over clients: for a frame that is no stream, such as the lake's."""
    return transforms.skew_report(hits, "_partition"), transforms.skew_report(hits, "client")


if __name__ == "__main__":
    pipeline.main()
