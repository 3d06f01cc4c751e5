"""Keys that are not equally busy: how to see it, and how to spread the work all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SALT = "_salt"


def skew_report(records: DataFrame, by: str = "_partition") -> DataFrame:
    """Records per group, each one's share, and how many times the mean it is; the busiest first."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    everything = Window.partitionBy()
    counts = records.groupBy(F.col(by)).agg(F.count(F.lit(1)).alias("records"))
    return (
        counts.withColumn("share", F.round(F.col("records") / F.sum("records").over(everything), 4))
        .withColumn("times_mean", F.round(F.col("records") / F.avg("records").over(everything), 2))
        .orderBy(F.col("records").desc(), F.col(by))
    )


def salted(records: DataFrame, key: str, salts: int) -> DataFrame:
    """With a column that splits every key into `salts` parts, the same part for the same record every time.

    A random salt would differ when a task is tried again, and records could then be counted twice or not at all.
    """
    from pyspark.sql import functions as F

    spread = F.pmod(F.xxhash64(F.col("_partition"), F.col("_offset")), F.lit(salts)).cast("int")
    return records.withColumn(SALT, spread).repartition(F.col(key), F.col(SALT))
