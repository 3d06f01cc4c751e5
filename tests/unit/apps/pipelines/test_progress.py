"""Progress that is true: the bar, the lag and the counts agree with each other and with what has been done."""

from __future__ import annotations

import json
from typing import Any

import pytest

from odradek.apps.pipelines.progress import Run
from odradek.apps.pipelines.queries import streams_of
from odradek.apps.pipelines.runner import BRIEF_RECORDS, is_brief
from odradek.apps.pipelines.session import BRIEF_JVM, JVM_OPTIONS, settings_for
from odradek.apps.pipelines.teller import Teller, doing
from odradek.apps.pipelines.timings import Timings
from odradek.client.cluster import TopicPartition
from odradek.pipelines import Pipeline, schemas, sinks, sources

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def run_of(**sinks_of: tuple[str, ...]) -> Run:
    """A run of sinks, each of the topics that it reads."""
    pipeline = Pipeline("p")
    for name in sorted({topic for topics in sinks_of.values() for topic in topics}):
        pipeline.source(name, sources.topic(name, value=schemas.raw(), key=schemas.raw()))
    for name, topics in sinks_of.items():
        pipeline.add_dataset(f"of_{name}", lambda **frames: None, topics)
        pipeline.sink(name, f"of_{name}", sinks.parquet(name))
    return Run("p", streams_of(pipeline))


def note(run: Run, sink: str, batch: int, rows: int, ends: dict[str, dict[str, int]], *, late: int = 0) -> None:
    run.queries[f"sink-{sink}"].note(
        {
            "runId": sink,
            "batchId": batch,
            "timestamp": f"{batch}",
            "numInputRows": rows,
            "durationMs": {"addBatch": 30, "triggerExecution": 40},
            "sources": [{"endOffset": {topic: offsets}} for topic, offsets in ends.items()],
            "stateOperators": [{"numRowsDroppedByWatermark": late}],
        }
    )


def aimed(run: Run, ends: dict[TopicPartition, int]) -> Run:
    for query in run.queries.values():
        query.begins = dict.fromkeys(ends, 0)
    run.aim(ends)
    return run


def test_the_bar_and_the_lag_agree() -> None:
    """One sink may be ahead of another: the bar is where the last of them is, and so is the lag."""
    run = aimed(run_of(lake=("t",), out=("t",)), {T0: 100, T1: 100})
    assert run.goal == 200
    assert run.line("starting").startswith("p: [------------------------]   0%; starting; 0 records, 0/s; lag 200 (")
    note(run, "lake", 0, 200, {"t": {"0": 100, "1": 100}})
    assert "]   0%; " in run.line()
    assert sum(run.lag().values()) == 200
    note(run, "out", 0, 149, {"t": {"0": 99, "1": 50}})
    assert "[#################-------]  74%; " in run.line()
    assert run.lag() == {T0: 1, T1: 50}
    note(run, "out", 1, 51, {"t": {"0": 100, "1": 100}})
    assert "[########################] 100%; 200 records" in run.line()
    assert run.lag() == {T0: 0, T1: 0}


def test_offsets_without_records_do_not_keep_the_bar_from_its_end() -> None:
    """After compaction, and with transactions, a topic has fewer records than offsets."""
    run = aimed(run_of(lake=("t",)), {T0: 100})
    note(run, "lake", 0, 7, {"t": {"0": 100}})
    assert "] 100%; 7 records" in run.line()


def test_a_hundred_percent_is_when_nothing_is_left() -> None:
    run = aimed(run_of(lake=("t",)), {T0: 1000})
    note(run, "lake", 0, 999, {"t": {"0": 999}})
    assert "[#######################-]  99%; " in run.line()


def test_what_came_after_a_bounded_run_began_is_told_apart() -> None:
    run = aimed(run_of(lake=("t",)), {T0: 100})
    run.ends = {T0: 130}
    note(run, "lake", 0, 50, {"t": {"0": 50}})
    assert "]  50%; 50 records" in run.line()
    assert "lag 80 (t-0 80), 30 of it came after the run began" in run.line()
    note(run, "lake", 1, 50, {"t": {"0": 100}})
    assert "] 100%; 100 records" in run.line()
    assert run.summary("p.dead-letters")[-1] == "  left to read: 30 records, which came after the run began"


def test_where_a_run_begins_may_be_unknown() -> None:
    run = run_of(lake=("t",))
    run.aim({T0: 100})
    assert run.goal is None
    assert "lag not known" in run.line()
    assert "[" not in run.line()
    assert not is_brief(run)


def test_a_record_and_a_late_row_count_once() -> None:
    """Two sinks of the same topic read and drop the same; those of different topics do not."""
    run = run_of(lake=("t",), out=("t",), other=("u",))
    note(run, "lake", 0, 10, {"t": {"0": 10}}, late=3)
    note(run, "out", 0, 10, {"t": {"0": 10}}, late=3)
    assert (run.records_read, run.late_rows) == (10, 3)
    note(run, "other", 0, 5, {"u": {"0": 5}}, late=1)
    assert (run.records_read, run.late_rows) == (15, 4)
    assert [each["late_rows"] for each in run.data("progress")["queries"].values()] == [3, 3, 1]


def test_a_sink_that_joins_counts_with_those_it_shares_a_topic_with() -> None:
    run = run_of(left=("t",), right=("u",), joined=("t", "u"))
    note(run, "left", 0, 10, {"t": {"0": 10}}, late=2)
    note(run, "right", 0, 20, {"u": {"0": 20}})
    note(run, "joined", 0, 30, {"t": {"0": 10}, "u": {"0": 20}}, late=5)
    assert (run.records_read, run.late_rows) == (30, 5)


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        ({}, ""),
        ({"sink-lake": ("Waiting for data to arrive", 4)}, ""),
        ({"sink-lake": ("Processing new data", 3)}, "writing batch 3 of sink-lake"),
        ({"sink-lake": ("Getting offsets from KafkaV2[Subscribe[t]]", 3)}, "asking for new records of sink-lake"),
        ({"a": ("Initializing sources", -1), "b": ("Processing new data", -1)}, "starting a and 1 more"),
        ({"a": ("Waiting for next trigger", 1), "b": ("No new data but cleaning up state", 7)}, "writing batch 7 of b"),
    ],
)
def test_what_queries_do_now(statuses: dict[str, tuple[str, int]], said: str) -> None:
    assert doing(statuses) == said


def test_little_work_gets_a_jvm_for_little_work() -> None:
    assert is_brief(aimed(run_of(lake=("t",)), {T0: BRIEF_RECORDS}))
    assert not is_brief(aimed(run_of(lake=("t",)), {T0: BRIEF_RECORDS + 1}))
    assert not is_brief(run_of(lake=("t",))), "a run without an end"
    assert settings_for("local[2]", brief=True)[JVM_OPTIONS] == BRIEF_JVM
    assert JVM_OPTIONS not in settings_for("local[2]")


def test_where_the_time_went() -> None:
    now = 100.0
    timings = Timings(lambda: now)
    with timings.phase("starting Spark"):
        now += 1
        with timings.phase("starting the JVM"):
            now += 2
    with timings.phase("batches"):
        now += 7
    assert timings.data() == {
        "seconds": 10.0,
        "phases": [
            {"phase": "starting Spark", "seconds": 3.0},
            {"phase": "starting Spark / starting the JVM", "seconds": 2.0},
            {"phase": "batches", "seconds": 7.0},
        ],
    }
    spark = {"sink-lake": {"addBatch": 4000, "queryPlanning": 500, "getBatch": 0, "triggerExecution": 5000}}
    assert timings.lines(spark) == [
        "PHASE               SECONDS  SHARE  OF WHICH",
        "starting Spark      3.00     30%",
        "  starting the JVM  2.00     20%",
        "batches             7.00     70%",
        "  sink-lake         5.00     50%    addBatch 4.00, queryPlanning 0.50",
        "all                 10.00    100%",
    ]


def test_a_program_gets_timings_with_the_summary_alone(capsys: pytest.CaptureFixture[str]) -> None:
    run = aimed(run_of(lake=("t",)), {T0: 10})
    with Teller("p", "json") as teller:
        with teller.during("starting Spark"):
            pass
        teller.follow(run)
        note(run, "lake", 0, 10, {"t": {"0": 10}})
        teller.batch()
    teller.end("p.dead-letters", with_timings=True)
    progress, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert (progress["event"], summary["event"]) == ("progress", "summary")
    assert "timings" not in progress
    timings: dict[str, Any] = summary["timings"]
    assert [each["phase"] for each in timings["phases"]] == ["starting Spark"]
    assert timings["queries"] == {"sink-lake": {"addBatch": 30, "triggerExecution": 40}}


def test_a_log_hears_of_what_takes_long_and_of_nothing_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from odradek.apps.pipelines import teller as module

    monkeypatch.setattr(module, "REDRAW_S", 0.01)
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)
    said = ""
    with Teller("p") as teller:
        with teller.during("looking for Java"):
            pass
        with teller.during("starting Spark"):
            for _ in range(500):
                said += capsys.readouterr().err
                if said:
                    break
                teller._ended.wait(0.01)
        teller.say("broker 1 does not answer.")
    assert said.startswith("p: starting Spark (")
    assert "odradek: broker 1 does not answer.\n" in capsys.readouterr().err
    with Teller("p", quiet=True) as teller, teller.during("starting Spark"):
        teller.note("metrics are somewhere.")
    assert capsys.readouterr().err == ""


def test_whoever_reads_what_a_query_has_done_is_not_disturbed_by_more() -> None:
    """The line is drawn, and metrics are served, by threads of their own."""
    run = aimed(run_of(lake=("t",)), {T0: 100, T1: 100})
    note(run, "lake", 0, 1, {"t": {"0": 1}})
    reading = iter(run.queries["sink-lake"].offsets)
    note(run, "lake", 1, 1, {"t": {"1": 1}})
    assert list(reading) == [T0]
    assert run.reached() == {T0: 1, T1: 1}
