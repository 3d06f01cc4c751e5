"""Offsets, checkpoints, progress and failures, without Spark and without brokers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from odradek.apps.pipelines import runner, scaffold
from odradek.apps.pipelines.brokers import lost, lost_by_query
from odradek.apps.pipelines.checkpoint import OWNER, Checkpoint, finished_offsets
from odradek.apps.pipelines.dead_letters import PREFIX, read_record
from odradek.apps.pipelines.failures import analysis, sentence
from odradek.apps.pipelines.launch import Queries
from odradek.apps.pipelines.progress import Run, exposition, reports_after
from odradek.apps.pipelines.queries import streams_of
from odradek.apps.pipelines.teller import Teller
from odradek.apps.pipelines.wishes import Wishes
from odradek.apps.terminal.sentence import Sentence
from odradek.client.cluster import TopicPartition
from odradek.client.consumer import ConsumerRecord
from odradek.pipelines import Pipeline, schemas, sinks, sources

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def pipeline(name: str = "p", topic: str = "t") -> Pipeline:
    made = Pipeline(name)
    made.source("t", sources.topic(topic, value=schemas.text()))
    made.sink("lake", "t", sinks.parquet("lake"))
    made.sink("out", "t", sinks.topic("out"))
    return made


def report(batch: int, rows: int, ends: dict[str, int], *, written: int = -1, **more: Any) -> dict[str, Any]:
    return {
        "runId": "r",
        "batchId": batch,
        "timestamp": f"2026-11-16T08:00:{batch:02}.000Z",
        "numInputRows": rows,
        "durationMs": {"addBatch": 5, "triggerExecution": 40},
        "sources": [{"endOffset": {"t": ends}}],
        "sink": {"numOutputRows": written},
        "stateOperators": [],
        **more,
    }


def test_a_group_is_never_ahead_of_any_query() -> None:
    run = Run("p", streams_of(pipeline()))
    letters, lake, out = run.queries.values()
    lake.note(report(0, 10, {"0": 10, "1": 4}))
    out.note(report(0, 14, {"0": 9, "1": 5}))
    assert run.positions() == {}, "dead letters have not been looked for"
    letters.note(report(0, 7, {"0": 7}))
    assert run.positions() == {T0: 7}
    letters.note(report(1, 7, {"0": 12, "1": 5}))
    assert run.positions() == {T0: 9, T1: 4}
    run.ends = {T0: 20, T1: 5, TopicPartition("other", 0): 9}
    assert run.lag() == {T0: 11, T1: 1}


class SparkQuery:
    """What PySpark's query is to those who look at it: a door to the JVM, through which every call is counted."""

    def __init__(self) -> None:
        self.held: list[dict[str, Any]] = []
        self.calls = 0
        self._jsq = self

    def lastProgress(self) -> SparkReport | None:
        self.calls += 1
        return SparkReport(self, self.held[-1]) if self.held else None

    def recentProgress(self) -> list[SparkReport]:
        self.calls += 1
        return [SparkReport(self, each) for each in self.held]


class SparkReport:
    def __init__(self, query: SparkQuery, content: dict[str, Any]) -> None:
        self._query = query
        self._content = content

    def timestamp(self) -> str:
        self._query.calls += 1
        return str(self._content["timestamp"])

    def json(self) -> str:
        self._query.calls += 1
        return json.dumps(self._content)


def test_looking_at_a_query_costs_few_calls() -> None:
    query = SparkQuery()
    assert reports_after(query, "") == []  # type: ignore[arg-type]
    query.held = [report(number, 10, {"0": number * 10}) for number in range(50)]
    assert reports_after(query, "") == query.held  # type: ignore[arg-type]
    known = query.held[-1]["timestamp"]
    query.calls = 0
    assert reports_after(query, known) == []  # type: ignore[arg-type]
    assert query.calls == 2
    query.held += [report(50, 1, {"0": 501}), report(51, 1, {"0": 502})]
    query.calls = 0
    assert reports_after(query, known) == query.held[-2:]  # type: ignore[arg-type]
    assert query.calls < 10, "reports known before are not fetched again"


def test_reports_are_counted_once() -> None:
    run = Run("p", streams_of(pipeline()))
    out = run.queries["sink-out"]
    operators = [{"numRowsDroppedByWatermark": 2, "numRowsTotal": 9, "memoryUsedBytes": 100}]
    assert out.note(report(0, 10, {"0": 10}, written=8, stateOperators=operators))
    assert not out.note(report(0, 10, {"0": 10}, written=8))
    idle = {**report(1, 0, {"0": 10}), "durationMs": {"triggerExecution": 1}}
    assert not out.note(idle)
    assert out.last_report == idle["timestamp"]
    assert out.note(report(1, 5, {"0": 15}, written=5, stateOperators=operators))
    assert (out.records_read, out.rows_written, out.batches, out.late_rows, out.state_rows) == (15, 13, 2, 4, 9)
    run.queries["dead-letters-t"].note(report(0, 15, {"0": 15}, written=3))
    data = run.data("progress")
    assert (data["records_read"], data["dead_letters"], data["late_rows"]) == (15, 3, 4)
    json.dumps(data)
    metrics = exposition(run)
    assert 'rows_written_total{pipeline="p",query="sink-out"} 13' in metrics
    assert 'rows_written_total{pipeline="p",query="sink-lake"}' not in metrics, "files do not say"
    line = run.line("writing batch 2 of sink-lake")
    assert line.startswith("p: writing batch 2 of sink-lake; 15 records, ")
    assert line.endswith("; state 9 rows, 100 B; 3 dead letters; 4 rows too late")


def test_what_spark_has_finished(tmp_path: Path) -> None:
    for part, names in (("offsets", "012"), ("commits", "01")):
        (tmp_path / part).mkdir()
        for name in names:
            lines = ["v1", "{}", json.dumps({"t": {"0": 10 * int(name)}}), json.dumps({"t": {"0": 99, "1": 7}})]
            (tmp_path / part / name).write_text("\n".join(lines))
    (tmp_path / "commits" / ".1.crc").write_bytes(b"crc")
    assert finished_offsets(tmp_path) == {T0: 10, T1: 7}, "batch 2 was begun and not finished"
    assert finished_offsets(tmp_path / "none") == {}


def test_a_checkpoint_belongs_to_one_pipeline_and_one_run(tmp_path: Path) -> None:
    place = str(tmp_path / "checkpoint")
    first = Checkpoint(place, pipeline())
    with first.taken():
        with pytest.raises(Sentence, match="somebody runs on the checkpoint"), Checkpoint(place, pipeline()).taken():
            pass
        writer = first.writer_id
    again = Checkpoint(place, pipeline())
    with again.taken():
        assert again.writer_id == writer
    for other, told in (
        (pipeline("q"), "is that of pipeline p, not of q"),
        (pipeline(topic="u"), "was topic t, is topic u"),
    ):
        with pytest.raises(Sentence, match=told), Checkpoint(place, other).taken():
            pass
    more = pipeline()
    more.sink("screen", "t", sinks.console())
    with Checkpoint(place, more).taken():
        pass
    assert "sink-screen" in json.loads(Path(place, OWNER).read_text())["shape"]
    with pytest.raises(Sentence, match="is not the checkpoint of q"):
        Checkpoint(place, pipeline("q")).remove()
    Checkpoint(place, pipeline(topic="u")).remove()
    assert not Path(place).exists()


def test_a_sink_that_comes_back_is_known(tmp_path: Path) -> None:
    """Its offsets are still in the checkpoint, so it may go on with them, but only over what it read before."""
    place = str(tmp_path / "checkpoint")
    with_side = pipeline()
    with_side.file = "p.py"
    with_side.source("u", sources.topic("u"))
    with_side.sink("side", "t", sinks.parquet("side"))
    with Checkpoint(place, with_side).taken():
        pass
    without = pipeline()
    with Checkpoint(place, without).taken():
        pass
    other = pipeline()
    other.file = "p.py"
    other.source("u", sources.topic("u"))
    other.sink("side", "u", sinks.parquet("side"))
    checkpoint = Checkpoint(place, other, options=f"--checkpoint {place}")
    with pytest.raises(Sentence) as refused, checkpoint.taken():
        pass
    assert "sink-side has changed since the checkpoint" in str(refused.value)
    assert "what it reads was topic t, is topic u" in str(refused.value)
    command = f"odradek pipeline reset p.py --checkpoint {place} --sink side --yes"
    assert command in str(refused.value)
    with Checkpoint(place, with_side).taken():
        pass

    (tmp_path / "checkpoint" / "sink-side" / "offsets").mkdir(parents=True)
    (tmp_path / "checkpoint" / "sink-lake" / "offsets").mkdir(parents=True)
    checkpoint.remove_query("sink-side")
    with checkpoint.taken():
        assert not (tmp_path / "checkpoint" / "sink-side").exists()
        assert (tmp_path / "checkpoint" / "sink-lake").exists()


def test_nobody_elses_directory_is_used_or_removed(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()
    for use in (
        lambda: Checkpoint(str(tmp_path), pipeline()).taken().__enter__(),
        Checkpoint(str(tmp_path), pipeline()).remove,
    ):
        with pytest.raises(Sentence, match=r"holds other things already \(photo.jpg\)|is not the checkpoint of p"):
            use()
    assert (tmp_path / "photo.jpg").exists()


def test_what_was_lost() -> None:
    begins, ends = {T0: 5, T1: 0}, {T0: 9, T1: 3}
    assert lost({T0: 5, T1: 3}, begins, ends) == []
    assert lost({T0: 4, T1: 3, TopicPartition("u", 0): 1}, begins, ends) == [
        "t-0 begins at 5 now, and offsets 4 to 4 were not read",
        "u-0 is not there any more",
    ]


def test_what_one_of_several_queries_has_lost() -> None:
    begins, ends = {T0: 5}, {T0: 9}
    text = "t-0 begins at 5 now, and offsets 2 to 4 were not read"
    assert lost_by_query({"sink-a": {T0: 2}, "sink-b": {T0: 2}}, begins, ends) == [text]
    assert lost_by_query({"sink-a": {T0: 7}, "sink-b": {T0: 2}}, begins, ends) == [f"sink-b: {text}"]


def test_what_spark_does_not_understand_is_one_sentence() -> None:
    told = "[UNRESOLVED] A column `q` cannot be resolved. Did you mean [`n`]. SQLSTATE: 42703; line 1 pos 0;\n'Project"
    assert str(analysis("dataset d", RuntimeError(told))) == (
        "dataset d: [UNRESOLVED] A column `q` cannot be resolved. Did you mean [`n`]."
    )


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("java.io.IOException: No space left on device", "the disk is full: free some space"),
        ('… set the source option "failOnDataLoss" to "false".', "--allow-data-loss"),
        ("[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] …", "keeps other state than it did when cp was written"),
        ("org.apache.kafka.common.errors.TimeoutException: x", "the brokers do not answer"),
        (
            "Job aborted\nCaused by: java.lang.IllegalStateException: deep\n\tat x",
            "failed: java.lang.IllegalStateException: deep",
        ),
        (
            "py4j.Py4JException: An exception was raised. Return Message: Traceback (most recent call last):\n  File\n"
            "odradek.apps.terminal.sentence.Sentence: another writes it.\n\n\tat py4j",
            "sink-lake failed: another writes it (all of it: log)",
        ),
        ("Traceback …\nValueError: seven\n", "failed: ValueError: seven (all of it: log); the checkpoint is intact"),
    ],
)
def test_failures_are_one_sentence(told: str, said: str) -> None:
    text = str(sentence("sink-lake", RuntimeError(told), checkpoint="cp", log_file="log"))
    assert said in text
    assert text.startswith("sink-lake")
    assert "\n" not in text


def test_a_failure_is_told_from_its_cause() -> None:
    """Spark's own words for a full disk, seen on one: the reason is three causes down."""
    failure = RuntimeError("[TASK_WRITE_FAILED] Task failed while writing rows to file:/lake")
    failure.__cause__ = RuntimeError("Job aborted")
    failure.__cause__.__cause__ = OSError("java.io.IOException: No space left on device")
    assert "the disk is full" in str(sentence("sink-lake", failure, checkpoint="cp", log_file="log"))


def test_a_dead_letter_is_read_from_its_headers() -> None:
    told = {"reason": b"why", "topic": b"t", "partition": b"3", "offset": b"41", "timestamp": b"7", "pipeline": b"p"}
    headers = (("mine", b"1"), *((PREFIX + name, value) for name, value in told.items()))
    record = ConsumerRecord("p.dead-letters", 0, 5, 99, b"k", b"v", headers, 0, False)
    letter = read_record(record)
    assert (letter.origin, letter.reason, letter.headers) == (("t", 3, 41, "", ""), "why", (("mine", b"1"),))
    with pytest.raises(Sentence, match=r"offset 5 of p\.dead-letters-0 is no dead letter"):
        read_record(ConsumerRecord("p.dead-letters", 0, 5, 99, b"k", b"v", (), 0, False))


def test_a_new_project_is_not_written_over_anything(tmp_path: Path) -> None:
    scaffold.create("word-count", tmp_path / "new")
    assert sorted(each.name for each in (tmp_path / "new").iterdir()) == [
        "README.md",
        "test_word_count.py",
        "word_count.py",
    ]
    with pytest.raises(Sentence, match="not empty"):
        scaffold.create("word-count", tmp_path / "new")
    with pytest.raises(Sentence, match="small letters"):
        scaffold.create("Word Count", tmp_path / "other")


class RefusingOnce:
    """Brokers of which the coordinator is away at first."""

    def __init__(self) -> None:
        self.committed: list[dict[TopicPartition, int]] = []

    def commit(self, group: str, offsets: dict[TopicPartition, int]) -> str:
        self.committed.append(dict(offsets))
        return "the coordinator is not available" if len(self.committed) == 1 else ""


def test_what_could_not_be_committed_is_committed_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no other batch follows: a group must not lag for ever behind a pipeline that has done everything."""
    monkeypatch.setattr(runner, "AGAIN_S", 0.0)
    declared, run, brokers = pipeline(), Run("p", streams_of(pipeline())), RefusingOnce()
    for query in run.queries.values():
        query.note(report(0, 10, {"0": 10}))
    checkpoint, nobody = Checkpoint(str(tmp_path), declared), cast("Any", None)
    known = declared, checkpoint, cast("Any", brokers), Wishes(), run
    queries = Queries(*known, nobody, nobody, nobody)  # None is started: what they reported is in `run`.
    shift = runner._Shift(*known, queries, Teller("p"), nobody, nobody, nobody)
    shift._commit()
    shift._look()
    shift._look()
    assert brokers.committed == [{T0: 10}, {T0: 10}]
    assert capsys.readouterr().err.splitlines() == [
        "odradek: offsets of group p are not committed for now: the coordinator is not available.",
        "odradek: offsets of group p are committed again.",
    ]
