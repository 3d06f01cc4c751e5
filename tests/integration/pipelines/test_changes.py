"""A pipeline's file changes between two runs: columns, sinks, and what is said where that cannot go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.apps.cli.main import main
from odradek.apps.pipelines import sinks
from odradek.apps.pipelines.checkpoint import OWNER
from odradek.apps.pipelines.trial import Trial
from odradek.apps.terminal.sentence import Sentence

Load = Callable[[Path], Trial]
Written = Callable[..., Path]

PIPELINE = """
    pipeline = Pipeline("orders")
    pipeline.source("orders", sources.topic("orders", value=schemas.json("id string, amount int, more string")))

    @pipeline.dataset
    def rows(orders):
        return orders.select("_key", "_deleted", "_timestamp", "_partition", "_offset", COLUMNS)

    pipeline.sink("lake", rows, sinks.parquet("lake", files=1))
    pipeline.sink("table", rows, sinks.parquet_table("table"))
"""


def test_columns_between_two_runs(pipeline: Load, written: Written, tmp_path: Path) -> None:
    def file(columns: str) -> Path:
        return written(PIPELINE.replace("COLUMNS", columns))

    trial = pipeline(file('"id", "amount"'))
    trial.send("orders", {"id": "a", "amount": 1}, key="a", partition=0)
    trial.run()
    trial.send("orders", {"id": "b", "amount": 2, "more": "x"}, key="b", partition=0)

    changed = pipeline(file('"id", F.col("amount").cast("string").alias("amount")'))
    with pytest.raises(Sentence) as refused:
        changed.run()
    assert "sink lake: the column amount was int and is string now" in str(refused.value)
    command = f"odradek pipeline reset {changed.pipeline.file} --data {tmp_path} --sink lake --delete-files --yes"
    assert f"`{command}`" in str(refused.value)
    assert len(trial.rows("lake")) == len(trial.rows("table")) == 1, "nothing was written"

    added = pipeline(file('"id", "amount", "more"'))
    added.run()
    fewer = pipeline(file('"id"'))
    fewer.send("orders", {"id": "c", "amount": 3}, key="c", partition=0)
    fewer.run()
    expected = [("a", 1, None), ("b", 2, "x"), ("c", None, None)]
    for sink in ("lake", "table"):
        rows = sorted((row["id"], row["amount"], row["more"]) for row in trial.rows(sink))
        assert rows == expected, sink
    assert sinks.read_lake(trial.spark, str(tmp_path / "lake")).where("more = 'x'").count() == 1

    # Left out and back again with another type, and a checkpoint of a version that noted no columns.
    with pytest.raises(Sentence, match="sink lake: the column amount was int and is double now"):
        pipeline(file('"id", F.col("amount").cast("double").alias("amount")')).run()
    owner = tmp_path / ".checkpoints" / "orders" / OWNER
    owner.write_text(json.dumps({k: v for k, v in json.loads(owner.read_text()).items() if k != "columns"}))
    with pytest.raises(Sentence, match="sink lake: the column amount was int and is double now"):
        pipeline(file('"id", F.col("amount").cast("double").alias("amount")')).run()

    # What is advised is one command, and leads out of it.
    again = pipeline(file('"id", F.col("amount").cast("string").alias("amount")'))
    assert main(command.split()[1:]) == 0
    with pytest.raises(Sentence, match="sink table: the column amount was int and is string now"):
        again.run()
    assert main([*command.replace("--sink lake", "--sink table").split()[1:], "--bootstrap", trial.bootstrap]) == 0
    again.run()
    for sink in ("lake", "table"):
        assert sorted((row["id"], row["amount"]) for row in again.rows(sink)) == [("a", "1"), ("b", "2"), ("c", "3")]


def test_a_lake_stays_partitioned_as_it_is(pipeline: Load, written: Written) -> None:
    text = PIPELINE.replace("COLUMNS", '"id", "amount"').replace("files=1", "partition_by=PARTS")
    trial = pipeline(written(text.replace("PARTS", '["id"]')))
    trial.send("orders", {"id": "a", "amount": 1}, key="a")
    trial.run()
    with pytest.raises(Sentence, match="it was partitioned by id and is by id, amount now"):
        pipeline(written(text.replace("PARTS", '["id", "amount"]'))).run()


def test_a_table_over_several_topics_needs_their_names(pipeline: Load, written: Written) -> None:
    text = PIPELINE.replace("COLUMNS", '"id"').replace('topic("orders"', 'topic("orders", "more"')
    with pytest.raises(Sentence, match="parquet table in table, by _key needs the columns _topic"):
        pipeline(written(text)).run()


TOTALS = """
    pipeline = Pipeline("totals")
    pipeline.source("sold", sources.topic("sold", value=schemas.json("id string, amount int, tax int")))

    @pipeline.dataset
    def by_id(sold):
        return sold.groupBy("id").agg(AGGREGATES)

    pipeline.sink("out", by_id, sinks.topic("totals", key="id"), mode="update")
"""


def test_a_query_that_keeps_other_state_than_before(pipeline: Load, written: Written, tmp_path: Path) -> None:
    def totals(aggregates: str) -> Trial:
        return pipeline(written(TOTALS.replace("AGGREGATES", aggregates)))

    def newest(trial: Trial) -> dict[str, object]:
        return trial.rows("out")[-1]

    trial = totals('F.sum("amount").alias("total")')
    trial.send("sold", {"id": "a", "amount": 10, "tax": 1}, partition=0)
    trial.run()

    changed = totals('F.sum("amount").alias("total"), F.max("amount").alias("most")')
    changed.send("sold", {"id": "a", "amount": 5, "tax": 2}, partition=0)
    for _ in range(2):
        with pytest.raises(
            Sentence, match=r"sink-out keeps other state than it did when .*totals was written"
        ) as refused:
            changed.run()
    command = f"odradek pipeline reset {changed.pipeline.file} --data {tmp_path} --sink out --yes"
    assert f"`{command}`" in str(refused.value)
    assert newest(trial) == {"id": "a", "total": 10}, "nothing was written"
    assert sum(trial.committed().values()) == 1

    # Of the same shape, the state is that of the query before: Spark cannot tell, and the how-to says so.
    taxes = totals('F.sum("tax").alias("total")')
    taxes.run()
    assert newest(trial) == {"id": "a", "total": 12}

    assert main(command.split()[1:]) == 0
    again = totals('F.sum("amount").alias("total"), F.max("amount").alias("most")')
    again.run()
    assert newest(trial) == {"id": "a", "total": 15, "most": 10}, "what is advised leads out of it"
