"""A compacted topic's meaning: of every key the newest value."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def latest_per_key(
    records: DataFrame, *, key: str = "_key", deleted: str = "_deleted", keep_deleted: bool = False
) -> DataFrame:
    """The last record of every key, without those whose column `deleted` is true.

    Within a partition offsets decide. A key is in two partitions only if the topic was given more of them, and then the
    timestamp decides: the older partition may have the larger offsets.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    newest_first = Window.partitionBy(key).orderBy(
        F.col("_timestamp").desc(), F.col("_offset").desc(), F.col("_partition").desc()
    )
    in_partition = Window.partitionBy(key, "_partition").orderBy(F.col("_offset").desc())
    last = (
        records.withColumn("_rank", F.row_number().over(in_partition))
        .where("_rank = 1")
        .withColumn("_rank", F.row_number().over(newest_first))
        .where("_rank = 1")
        .drop("_rank")
    )
    return last if keep_deleted else last.where(~F.col(deleted)).drop(deleted)
