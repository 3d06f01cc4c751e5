"""The table that follows changes: which record of a key is the newest, and how long a deleted key stays deleted."""

from __future__ import annotations

import fcntl
import os
import random
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.pipelines.order import newest_of_each

from odradek.apps.pipelines import sinks, tables
from odradek.apps.pipelines.tables import Following, TableWriter, read_current
from odradek.apps.pipelines.transforms.latest import latest_per_key
from odradek.apps.terminal.sentence import Sentence
from odradek.client.cluster import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIELDS = (
    "_key string, name string, _deleted boolean, _topic string, _partition int, _offset bigint, _timestamp timestamp"
)
START = datetime(2026, 1, 1)


@dataclass(frozen=True)
class Change:
    """A record, and which of the topics of its name it was in."""

    key: str
    name: str | None
    topic: str
    partition: int
    offset: int
    second: int
    incarnation: int = 0

    @property
    def timestamp_ms(self) -> int:
        return self.second * 1000

    def row(self) -> tuple[object, ...]:
        at = START + timedelta(seconds=self.second)
        return self.key, self.name, self.name is None, self.topic, self.partition, self.offset, at


def frame(spark: SparkSession, *changes: Change) -> DataFrame:
    return spark.createDataFrame([each.row() for each in changes], FIELDS)


def names(spark: SparkSession, place: Path) -> dict[str, str]:
    return {row._key: row.name for row in sinks.read_table(spark, str(place)).collect()}


def test_offsets_of_different_topics_never_decide(spark: SparkSession, tmp_path: Path) -> None:
    older = Change("a", "older", "t", 0, 900, 1)
    newer = Change("a", "newer", "u", 0, 3, 2)
    gone = Change("b", None, "u", 0, 4, 2)
    there = Change("b", "there", "t", 0, 901, 1)
    rows = latest_per_key(frame(spark, older, newer, gone, there)).collect()
    assert [(row._key, row.name) for row in rows] == [("a", "newer")]
    merge = TableWriter(str(tmp_path), "_key", "_deleted", "writer")
    merge(frame(spark, newer, there), 0)
    merge(frame(spark, older, gone), 1)
    assert names(spark, tmp_path) == {"a": "newer"}


def test_a_deleted_key_stays_deleted(spark: SparkSession, tmp_path: Path) -> None:
    """The deletion is in a new partition, what it deletes in the backlog of an old one."""
    old, new = TopicPartition("t", 0), TopicPartition("t", 1)
    read_up_to = [{old: 2, new: 5}, {old: 6, new: 5}, {old: 9, new: 6}, {old: 9, new: 7}]
    ends = {old: 9, new: 5}
    following = Following("t", positions=lambda batch: read_up_to[batch], ends=lambda: ends)
    merge = TableWriter(str(tmp_path), "_key", "_deleted", "writer", following)
    merge(frame(spark, Change("a", None, "t", 1, 4, 20), Change("b", "there", "t", 0, 1, 1)), 0)
    assert read_current(tmp_path)["fence"] == {"upto": 0, "ends": {"t-0": 9, "t-1": 5}}  # type: ignore[index]
    merge(frame(spark, Change("a", "older", "t", 0, 5, 10)), 1)
    assert names(spark, tmp_path) == {"b": "there"}
    gone = tmp_path / "tombstones-1"
    assert spark.read.parquet(str(gone)).select("_key", "name").collect() == [("a", None)], "nothing else of it is kept"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "KEPT_S", 0.0)
        merge(frame(spark, Change("c", None, "t", 1, 5, 30)), 2)
        assert read_current(tmp_path)["passed"] == 0  # type: ignore[index]
        held = [row._key for row in spark.read.parquet(str(tmp_path / "tombstones-2")).collect()]
        assert held == ["c"], "all partitions were read up to where they ended when a was deleted; not so for c"
        merge(frame(spark, Change("b", None, "t", 1, 6, 30)), 3)
    assert names(spark, tmp_path) == {}
    shown = ["_key", "name", "_topic", "_partition", "_offset", "_timestamp"]
    assert sinks.read_table(spark, str(tmp_path)).columns == shown


def test_a_topic_that_was_made_again(spark: SparkSession, tmp_path: Path) -> None:
    ids = {"t": "one"}
    merge = TableWriter(str(tmp_path), "_key", "_deleted", "writer", Following("t", ids=lambda: ids))
    merge(frame(spark, Change("a", "old", "t", 0, 700, 50), Change("b", "old", "t", 0, 701, 50)), 0)
    ids["t"] = "two"
    merge(frame(spark, Change("a", "new", "t", 0, 0, 40), Change("b", None, "t", 1, 0, 40)), 1)
    assert names(spark, tmp_path) == {"a": "new"}
    # After a reset, too: a topic is known by its id, not by how often somebody has counted.
    again = TableWriter(str(tmp_path), "_key", "_deleted", "started over", Following("t", ids=lambda: ids))
    again(frame(spark, Change("a", "new again", "t", 0, 0, 40), Change("a", "last", "t", 1, 8, 41)), 0)
    assert names(spark, tmp_path) == {"a": "last"}


def test_two_pipelines_do_not_write_one_table(spark: SparkSession, tmp_path: Path) -> None:
    first = TableWriter(str(tmp_path), "_key", "_deleted", "first")
    second = TableWriter(str(tmp_path), "_key", "_deleted", "second")
    first(frame(spark, Change("a", "one", "t", 0, 1, 1)), 0)
    second(frame(spark, Change("a", "two", "t", 0, 2, 1)), 0)  # As one that has started over would.
    with pytest.raises(Sentence, match="another pipeline writes the table"):
        first(frame(spark, Change("a", "three", "t", 0, 3, 1)), 1)
    lock = os.open(tmp_path / tables.LOCK, os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(Sentence, match="another pipeline writes the table"):
        second(frame(spark, Change("a", "three", "t", 0, 3, 1)), 1)
    os.close(lock)
    assert names(spark, tmp_path) == {"a": "two"}


KEYS = 150


@pytest.mark.parametrize("seed", [1, 2])
def test_the_order_is_the_same_however_records_come(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    """Every key has a history of its own: topics, partitions and clocks as drawn; `t` is made again on the way."""
    draw = random.Random(seed)
    batches: list[list[Change]] = [[] for _ in range(5)]
    offsets: dict[tuple[str, int, int], int] = defaultdict(int)
    for batch in range(5):
        incarnation = int(batch >= 3)
        for key in range(KEYS):
            for _ in range(draw.choice((0, 1, 1, 3))):
                topic, partition = draw.choice("tu"), draw.randrange(2)
                own = incarnation if topic == "t" else 0
                offset = offsets[topic, own, partition]
                offsets[topic, own, partition] += draw.randint(1, 3)
                name = None if draw.random() < 0.3 else f"{topic}-{partition}@{offset}"
                batches[batch].append(Change(str(key), name, topic, partition, offset, draw.randrange(6), own))
    ids = {"t": "one", "u": "other"}
    merge = TableWriter(str(tmp_path), "_key", "_deleted", "writer", Following(None, ids=lambda: ids))
    for number, changes in enumerate(batches):
        if number == 3:
            ids["t"] = "two"
        draw.shuffle(changes)
        merge(frame(spark, *changes), number)
    newest = newest_of_each([each for batch in batches for each in batch]).values()
    expected = {each.key: each.name for each in newest if each.name is not None}
    assert names(spark, tmp_path) == expected
