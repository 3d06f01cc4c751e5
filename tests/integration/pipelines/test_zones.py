"""A pipeline in a zone with daylight saving: moments stay what they are where clocks are put back or forward."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.apps.pipelines.trial import Trial
from odradek.clients import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ZONE = "spark.sql.session.timeZone"
FIRST_MS, SECOND_MS = 1_792_888_200_000, 1_792_891_800_000
"""When clocks in Berlin show 02:30 on 2026-10-25, and an hour later, when they show it again."""

CLOCKS = """
    pipeline = Pipeline("clocks")
    pipeline.source("clocks", sources.topic("clocks", value=schemas.json("name string, at timestamp")))

    @pipeline.dataset
    def days(clocks):
        return clocks.select("name", "at", "_timestamp", F.date_format("_timestamp", "yyyy-MM-dd HH").alias("hour"))

    pipeline.sink("lake", days, sinks.parquet("lake", partition_by=["hour"]))
    pipeline.sink("table", "clocks", sinks.parquet_table("table"))
"""


@pytest.fixture
def berlin(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, "Europe/Berlin")
    yield
    spark.conf.set(ZONE, str(before))


def send(trial: Trial, partition: int, name: str, at: str, sent_ms: int) -> None:
    async def write() -> None:
        async with connect(trial.bootstrap).producer() as producer:
            value = json.dumps({"name": name, "at": at}).encode()
            await producer.send("clocks", value, key=b"k", partition=partition, timestamp_ms=sent_ms)

    asyncio.run(write())


@pytest.mark.usefixtures("berlin")
def test_an_hour_that_comes_twice_and_one_that_never_comes(
    pipeline: Callable[[Path], Trial], written: Callable[[str], Path]
) -> None:
    trial = pipeline(written(CLOCKS))
    send(trial, 0, "second", "2026-10-25T02:30:00+01:00", SECOND_MS)
    trial.run()
    send(trial, 1, "first", "2026-10-25T02:30:00+02:00", FIRST_MS)
    send(trial, 1, "never", "2026-03-29T02:30:00", FIRST_MS + 1)
    trial.run()
    assert [row["name"] for row in trial.rows("table")] == ["second"], "the later moment, of the same time of day"
    lake = trial.spark.read.parquet(str(trial.directory / "lake"))
    moments = lake.selectExpr("name", "unix_millis(at)", "unix_millis(_timestamp)", "hour").orderBy("name").collect()
    assert [tuple(row) for row in moments] == [
        ("first", FIRST_MS, FIRST_MS, "2026-10-25 02"),
        ("second", SECOND_MS, SECOND_MS, "2026-10-25 02"),
    ]
    (letter,) = trial.dead_letters()
    assert letter.reason == "the field at is a time that clocks skip in Europe/Berlin"
    assert letter.timestamp_ms == FIRST_MS + 1
