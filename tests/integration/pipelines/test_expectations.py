"""What is expected of rows: counted, left out, sent to the dead letters, or the run's end. Tombstones to topics."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.apps.pipelines.progress import exposition
from odradek.apps.pipelines.trial import Trial
from odradek.apps.terminal.sentence import Sentence

Load = Callable[[Path], Trial]
Written = Callable[..., Path]

PIPELINE = """
    pipeline = Pipeline("orders")
    pipeline.source("orders", sources.topic("orders", value=schemas.json("id string, amount double, land string")))

    @pipeline.expect("known_land", "land IN ('DE', 'FR')")
    @pipeline.expect("small", "amount < 1000", on_fail="dead-letter")
    @pipeline.dataset
    @pipeline.expect("positive", "amount > 0", on_fail="drop")
    def good(orders):
        return orders

    @pipeline.dataset
    def ids(good):
        return good.select("id", "_key", "_deleted", "_timestamp", "_partition", "_offset")

    pipeline.sink("lake", ids, sinks.parquet("lake", files=1))
    pipeline.sink("table", ids, sinks.parquet_table("table"))
    pipeline.sink("out", ids, sinks.topic("ids"))
"""


def test_rows_that_are_not_as_expected(pipeline: Load, written: Written) -> None:
    trial = pipeline(written(PIPELINE))
    amounts = [5, -1, 0, None, 4000, 7, 5000]
    lands = ["DE", "FR", "DE", "DE", "DE", "XX", None]
    for number, (amount, land) in enumerate(zip(amounts, lands, strict=True)):
        trial.send("orders", {"id": str(number), "amount": amount, "land": land}, key=f"k{number}", partition=0)
    trial.send("orders", "no JSON", partition=1)
    ran = trial.run()
    for sink in ("lake", "table", "out"):
        assert sorted(row["id"] for row in trial.rows(sink)) == ["0", "5"], sink
    expected = {"positive": 3, "small": 3, "known_land": 2}
    assert ran.data("summary")["expectations"] == {"good": expected}, "NULL is not true"
    for name in ("sink-lake", "sink-table", "sink-out"):
        assert {key[1]: count for key, count in ran.queries[name].unmet.items()} == expected, name
    assert "  expectation positive of good: not met by 3 rows" in ran.summary("orders.dead-letters")
    assert 'expectation_failures_total{pipeline="orders",dataset="good",expectation="small"} 3\n' in exposition(ran)
    assert "3 rows of good not positive" in ran.line()
    assert ran.dead_letters == 4
    letters = [(each.partition, each.offset, each.reason) for each in trial.dead_letters()]
    small = "expectation small is not met (amount < 1000)"
    assert letters == [(0, 3, small), (0, 4, small), (0, 6, small), (1, 0, "the value is not JSON")]
    letter = trial.dead_letters()[1]
    assert (letter.key, json.loads(letter.value or b"")) == (b"k4", {"id": "4", "amount": 4000.0, "land": "DE"})
    trial.send("orders", {"id": "8", "amount": -2, "land": "DE"}, key="k8", partition=0)
    again = trial.run()
    assert again.unmet == {("good", "positive"): 1, ("good", "small"): 0, ("good", "known_land"): 0}


def test_a_run_stops(pipeline: Load, written: Written) -> None:
    text = """
        pipeline: orders
        sources:
          orders: {topic: orders, value: {json: "id string, amount double"}}
        datasets:
          large: SELECT id, amount, _topic, _partition, _offset FROM orders WHERE amount <> 3
        expectations:
          large:
            known: id IS NOT NULL
            positive: {condition: amount > 0, on_fail: ON_FAIL}
        sinks:
          lake: {from: large, parquet: lake, files: 1}
    """
    trial = pipeline(written(text.replace("ON_FAIL", "stop"), "orders.yaml"))
    trial.send("orders", *({"id": "x", "amount": amount} for amount in (1, 3, -3)), partition=0)
    with pytest.raises(Sentence) as stopped:
        trial.run()
    assert str(stopped.value).startswith(
        "sink-lake: expectation positive is not met (amount > 0) in large by orders-0@2: nothing of that batch is in "
        "the sink; "
    )
    assert not list(trial.directory.glob("lake/*.parquet"))
    trial = pipeline(written(text.replace("ON_FAIL", "drop"), "orders.yaml"))
    assert trial.run().data("summary")["expectations"] == {"large": {"known": 0, "positive": 1}}
    assert [row["amount"] for row in trial.rows("lake")] == [1]


def test_a_dead_letter_says_where_it_is_from(pipeline: Load, written: Written) -> None:
    aggregated = PIPELINE.replace(
        "return orders\n", 'return orders.groupBy("id").agg(F.max("amount").alias("amount"))\n'
    )
    with pytest.raises(Sentence, match="dataset good: rows that become dead letters must say where they are from"):
        pipeline(written(aggregated)).run()


def test_tombstones_to_a_topic(pipeline: Load, written: Written) -> None:
    trial = pipeline(
        written(
            """
            pipeline = Pipeline("names")
            pipeline.source("names", sources.topic("names", value=schemas.json("name string"), tombstones="keep"))

            @pipeline.dataset
            def upper(names):
                return names.withColumn("name", F.upper("name")).withColumn("gone", F.col("_deleted"))

            pipeline.sink("out", upper, sinks.topic("upper", key="_key", deleted="gone"))
            """
        )
    )
    trial.send_records("names", [("a", {"name": "ann"}), ("b", {"name": "bob"}), ("a", None)], partition=0)
    trial.run()
    assert sorted(trial.records("upper"), key=str) == [
        (b"a", None),
        (b"a", b'{"name":"ANN"}'),
        (b"b", b'{"name":"BOB"}'),
    ]
    with pytest.raises(Sentence, match=r"deleted='gone'\) needs a key"):
        pipeline(
            written(
                """
                pipeline = Pipeline("names")
                pipeline.source("names", sources.topic("names"))
                pipeline.sink("out", "names", sinks.topic("upper", deleted="gone"))
                """
            )
        )
