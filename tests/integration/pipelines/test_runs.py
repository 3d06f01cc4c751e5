"""A pipeline from its file to its sinks, on a real node: offsets, dead letters, going on, and what is refused."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.apps.pipelines import command
from odradek.apps.pipelines.dead_letters import replay
from odradek.apps.pipelines.definition import load
from odradek.apps.pipelines.progress import MetricsServer, exposition
from odradek.apps.pipelines.runner import run
from odradek.apps.pipelines.trial import Trial
from odradek.apps.pipelines.wishes import Wishes
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import Session
from odradek.client.cluster import TopicPartition
from odradek.clients import connect

Load = Callable[[Path], Trial]
Written = Callable[..., Path]

NUMBERS = """
    pipeline = Pipeline("numbers")
    pipeline.source("numbers", sources.topic("numbers", value=schemas.json("n bigint", required=["n"])))

    @pipeline.dataset
    def doubled(numbers):
        return numbers.select((F.col("n") * 2).alias("n"))

    pipeline.sink("lake", doubled, sinks.parquet("lake", files=1))
"""


def test_a_run_reads_writes_commits_and_goes_on(pipeline: Load, written: Written) -> None:
    trial = pipeline(written(NUMBERS))
    trial.send("numbers", *({"n": number} for number in range(10)), partition=0)
    trial.send("numbers", b"\xff{", b"[1]", {"n": "one"}, None, b"{}", {"n": 10}, partition=1)
    ran = trial.run()
    assert sorted(row["n"] for row in trial.rows("lake")) == [2 * number for number in range(11)]
    assert (ran.records_read, ran.dead_letters) == (16, 5)
    assert trial.committed() == {TopicPartition("numbers", 0): 10, TopicPartition("numbers", 1): 6}
    assert [(each.offset, each.value, each.reason) for each in trial.dead_letters()] == [
        (0, b"\xff{", "the value is not UTF-8"),
        (1, b"[1]", "the value is not a JSON object of the declared schema"),
        (2, b'{"n": "one"}', "the field n is no bigint"),
        (3, None, "the value is null"),
        (4, b"{}", "the field n is missing or null"),
    ]
    summary = ran.summary("numbers.dead-letters")
    assert "16 records" in summary[0]
    assert summary[-1] == "  dead letters: 5 to numbers.dead-letters"
    metrics = exposition(ran)
    assert 'odradek_pipeline_dead_letters_total{pipeline="numbers"} 5\n' in metrics
    assert 'odradek_pipeline_lag_records{pipeline="numbers",topic="numbers",partition="1"} 0\n' in metrics
    with MetricsServer(ran, 0) as server, urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
        assert answer.read().decode().startswith("# HELP odradek_pipeline_")

    trial.send("numbers", {"n": 11}, partition=0)
    assert trial.run().records_read == 1
    assert len(trial.rows("lake")) == 12
    assert trial.committed()[TopicPartition("numbers", 0)] == 11

    session = Session({"bootstrap.servers": trial.bootstrap})
    wanted: dict[str, Any] = {"group": "numbers.replay", "to": None, "reasons": [], "dry_run": True}
    topic = "numbers.dead-letters"
    assert asyncio.run(replay(session, topic, **{**wanted, "reasons": ["UTF-8"]})) == (1, 4)
    assert asyncio.run(replay(session, topic, **{**wanted, "dry_run": False})) == (5, 0)
    assert asyncio.run(replay(session, topic, **wanted)) == (0, 0), "what was sent back is not sent again"
    assert trial.run().dead_letters == 5, "they are as bad as they were"


def test_a_pipeline_in_yaml(pipeline: Load, written: Written) -> None:
    trial = pipeline(
        written(
            """
            pipeline: errors
            sources:
              requests:
                topic: requests
                value: {json: "path string, status int", required: [status]}
                max_per_trigger: 3
            datasets:
              errors: SELECT path, status, _offset AS at FROM requests WHERE status >= 500
            sinks:
              lake: {from: errors, parquet: lake/errors, partition_by: [status], files: 1}
              alarms: {from: errors, topic: alarms, key: path}
            """,
            "errors.yaml",
        )
    )
    trial.send("requests", *({"path": f"/{n}", "status": 500 if n % 2 else 200} for n in range(8)), "?", partition=0)
    ran = trial.run()
    assert sorted(row["path"] for row in trial.rows("lake")) == ["/1", "/3", "/5", "/7"]
    assert {key: json.loads(value or b"")["at"] for key, value in trial.records("alarms")} == {
        b"/1": 1, b"/3": 3, b"/5": 5, b"/7": 7
    }  # fmt: skip
    assert ran.dead_letters == 1
    assert ran.queries["sink-lake"].batches == 3, "nine records, three at a time"


def test_what_cannot_work_is_refused_in_a_sentence(pipeline: Load, written: Written, tmp_path: Path) -> None:
    file = written(NUMBERS)
    trial = pipeline(file)
    trial.send("numbers", *({"n": number} for number in range(10)), partition=0)
    trial.run()

    def refusal(text: str, **wishes: Any) -> str:
        other = Trial(str(written(text, "other.py")), trial.spark, trial.bootstrap, tmp_path)
        with pytest.raises(Sentence) as refused:
            other.run(checkpoint=str(tmp_path / ".checkpoints" / "numbers"), **wishes)
        return str(refused.value)

    assert "is that of pipeline numbers, not of letters" in refusal(
        NUMBERS.replace('Pipeline("numbers")', 'Pipeline("letters")')
    )
    assert "sink-lake has changed since" in refusal(NUMBERS.replace('parquet("lake"', 'parquet("pond"'))
    assert "its place was lake, is pond" in refusal(NUMBERS.replace('parquet("lake"', 'parquet("pond"'))
    stateful = NUMBERS.replace('select((F.col("n") * 2).alias("n"))', 'select("m")')
    assert "cannot be resolved" in refusal(stateful)

    with pytest.raises(Sentence, match="holds other things already"):
        trial.run(checkpoint=str(tmp_path))
    failing = NUMBERS.replace('F.col("n") * 2', 'F.udf(lambda n: 1 // (n - 10), "bigint")("n")')
    trial.send("numbers", {"n": 10}, partition=0)
    told = refusal(failing)
    assert "ZeroDivisionError" in told
    assert "the checkpoint is intact" in told
    assert "\n" not in told
    assert trial.run().records_read == 1, "and so it was"

    async def age_out() -> None:
        async with connect(trial.bootstrap).producer() as producer:
            for number in range(5):
                await producer.send("numbers", b'{"n": %d}' % number, partition=0)
        async with connect(trial.bootstrap).admin() as admin:
            await admin.delete_records({TopicPartition("numbers", 0): 14})

    asyncio.run(age_out())
    with pytest.raises(Sentence, match="numbers-0 begins at 14 now, and offsets 11 to 13 were not read"):
        trial.run()
    assert trial.run(allow_data_loss=True).records_read == 2

    missing = load(str(written(NUMBERS.replace('topic("numbers"', 'topic("nubmers"'), "missing.py")))
    wishes = Wishes(data=str(tmp_path / "other"), available_now=True, quiet=True)
    with pytest.raises(Sentence, match=r"there is no topic nubmers\. Did you mean numbers\?"):
        run(missing, Session({"bootstrap.servers": trial.bootstrap}), wishes, spark=trial.spark)
    nobody = Session({"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": "1000"})
    with pytest.raises(Sentence, match=r"cannot reach the cluster at 127\.0\.0\.1:1"):
        run(missing, nobody, wishes, spark=trial.spark)
    assert not (tmp_path / "other").exists()


def test_mistakes_are_found_without_a_run(pipeline: Load, written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    trial = pipeline(written(NUMBERS))
    frames = command.with_empty_sources(trial.pipeline, trial.spark)
    assert frames["lake"].columns == ["n"]
    wrong = load(str(written(NUMBERS.replace('F.col("n")', 'F.col("m")'), "wrong.py")))
    with pytest.raises(Sentence, match=r"dataset doubled: .*UNRESOLVED_COLUMN"):
        command.with_empty_sources(wrong, trial.spark)
    fields = load(str(written(NUMBERS.replace('"n bigint"', '"n bigit"'), "fields.py")))
    with pytest.raises(Sentence, match="is not a list of columns"):
        command.with_empty_sources(fields, trial.spark)
    assert command.describe(trial.pipeline)[1] == (
        "  source numbers: topic numbers, dead letters to numbers.dead-letters"
    )
