"""A million small records in one batch, since nothing bounds it: none is missing, doubled or in the wrong place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.apps.pipelines import sinks
from odradek.apps.pipelines.trial import Trial
from odradek.clients import connect

RECORDS = 1_000_000
KEYS = 10_000
BAD_EVERY = 1_000
GONE_EVERY = 10
"""Of the keys, every so manyth is deleted in the end."""

NUMBERS = """
    pipeline = Pipeline("numbers")
    source = sources.topic("numbers", value=schemas.json("n bigint", required=["n"]), tombstones="keep")
    pipeline.source("numbers", source)

    @pipeline.dataset
    def there(numbers):
        return numbers.where("NOT _deleted").select("_key", "n")

    pipeline.sink("lake", there, sinks.parquet("lake"))
    pipeline.sink("out", there, sinks.topic("copies", key="_key"))
    pipeline.sink("table", "numbers", sinks.parquet_table("table"))
"""


async def write(bootstrap: str) -> None:
    """Keys take turns, so that a record's number says which key it has."""
    async with connect(bootstrap).producer() as producer:
        for number in range(RECORDS):
            value = b"?" if number % BAD_EVERY == 0 else b'{"n":%d}' % number
            await producer.submit("numbers", value, key=b"%d" % (number % KEYS))
        for key in range(0, KEYS, GONE_EVERY):
            await producer.submit("numbers", None, key=b"%d" % key)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_million_small_records(pipeline: Callable[[Path], Trial], written: Callable[[str], Path]) -> None:
    trial = pipeline(written(NUMBERS))
    asyncio.run(write(trial.bootstrap))
    ran = trial.run()
    bad = RECORDS // BAD_EVERY
    deletions = KEYS // GONE_EVERY
    assert {name: each.batches for name, each in ran.queries.items()} == dict.fromkeys(ran.queries, 1)
    assert ran.records_read == sum(trial.committed().values()) == RECORDS + deletions
    numbers = set(range(RECORDS)) - set(range(0, RECORDS, BAD_EVERY))
    assert ran.dead_letters == len(trial.dead_letters()) == bad

    lake = sinks.read_lake(trial.spark, str(trial.directory / "lake"))
    topic = trial.spark.read.format("kafka").option("kafka.bootstrap.servers", trial.bootstrap)
    copies = topic.option("subscribe", "copies").load()
    number = "cast(get_json_object(cast(value AS string), '$.n') AS bigint) AS n"
    copies = copies.selectExpr("cast(key AS string) AS _key", number)
    for name, rows in (("lake", lake), ("out", copies)):
        found = rows.selectExpr("count(*)", "count(DISTINCT n)", "sum(n)", f"count_if(n % {KEYS} = _key)").first()
        assert found is not None
        assert tuple(found) == (len(numbers), len(numbers), sum(numbers), len(numbers)), name
    newest = {str(number % KEYS): number for number in sorted(numbers)}
    table = sinks.read_table(trial.spark, str(trial.directory / "table")).select("_key", "n").collect()
    assert {row._key: row.n for row in table} == {
        key: number for key, number in newest.items() if int(key) % GONE_EVERY
    }
    assert len(table) == KEYS - deletions
