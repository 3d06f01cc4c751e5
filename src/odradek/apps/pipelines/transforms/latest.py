"""Which record of a key is the newest: the order that tables follow, wherever records come from.

Within one partition offsets decide. Between partitions, and between topics, offsets say nothing, so times do. Both
together are no order yet: with clocks that go back, a may be before b by offset, b before c and c before a by time. So
a record's time is taken to be the newest timestamp that its key has had in its partition up to it. That time never
goes back within a partition, so offsets and times agree, and what is left is an order of all records:

1. the later time;
2. the later topic, by name;
3. the later of several topics that had this name, one after the other;
4. the later time in that one alone;
5. the higher partition;
6. the higher offset.

A topic that was deleted and made again is newer than what had its name before, whatever its producers' clocks say: its
records take over the time of its key's newest record before (the floor), and so are never older than that.

One row a key remembers enough: of everything that is not the newest, all that later records could want is a time
that is not above the one remembered, and where it is not, it decides nothing. So the outcome does not depend on how
records come in batches, nor on which partition is read first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INCARNATION, FLOOR, NEWEST = "_incarnation", "_floor", "_newest"
"""Of a row that stands for its key: how many topics had its topic's name before, the newest time of the key in those,
and its own time. Rows that are new have no time of their own yet."""


def latest_per_key(
    records: DataFrame, *, key: str = "_key", deleted: str = "_deleted", keep_deleted: bool = False
) -> DataFrame:
    """The newest record of every key, without those whose column `deleted` is true.

    Within a partition offsets decide; between partitions and topics timestamps do, then the topic's name, the
    partition and the offset, so that it is the same record in every run.
    """
    from pyspark.sql import functions as F

    rows = records if "_topic" in records.columns else records.withColumn("_topic", F.lit(""))
    rows = rows.withColumn(INCARNATION, F.lit(0))
    for name in (FLOOR, NEWEST):
        rows = rows.withColumn(name, F.lit(None).cast("timestamp"))
    last = newest(rows, key=key).select(*[F.col(f"`{name}`") for name in records.columns])
    return last if keep_deleted else last.where(~F.coalesce(F.col(deleted), F.lit(False))).drop(deleted)


def newest(rows: DataFrame, *, key: str) -> DataFrame:
    """The row of every key that stands for it from now on, of those that stood for their keys so far (at most one a
    key, with a time of their own) and of records that came since."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    of_key = Window.partitionBy(key)
    in_topic = Window.partitionBy(key, "_topic")
    in_partition = Window.partitionBy(key, "_topic", INCARNATION, "_partition")
    known = F.col(NEWEST).isNotNull()
    known_incarnation = F.max(F.when(known, F.col(INCARNATION))).over(in_topic)
    known_floor = F.max(F.col(FLOOR)).over(in_topic)
    known_time = F.max(F.when(known, F.greatest(FLOOR, NEWEST))).over(in_topic)
    timed = (
        # One shuffle for all of them: what is together by its key is together by its key and more.
        rows.repartition(F.col(key))
        .withColumn("_floor_now", F.when(F.col(INCARNATION) > known_incarnation, known_time).otherwise(known_floor))
        .withColumn("_newest_now", F.max(F.coalesce(NEWEST, "_timestamp")).over(in_partition))
        # A record that is read again after a reset may have become another row: the one that comes now is meant.
        .withColumn("_rank", F.row_number().over(in_partition.orderBy(F.col("_offset").desc(), known.asc())))
        .where("_rank = 1")
        .withColumn(FLOOR, F.col("_floor_now"))
        .withColumn(NEWEST, F.col("_newest_now"))
    )
    newest_first = of_key.orderBy(
        F.greatest(FLOOR, NEWEST).desc(),
        F.col("_topic").desc(),
        F.col(INCARNATION).desc(),
        F.col(NEWEST).desc(),
        F.col("_partition").desc(),
    )
    ranked = timed.withColumn("_rank", F.row_number().over(newest_first)).where("_rank = 1")
    return ranked.drop("_rank", "_floor_now", "_newest_now")
