"""Pipelines as they are declared, in Python and in YAML, and what is wrong with some."""

from __future__ import annotations

import re
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.apps.pipelines.definition import load
from odradek.apps.pipelines.queries import query_names, shape, streams_of
from odradek.apps.terminal.sentence import Sentence
from odradek.pipelines import Pipeline, schemas, sinks, sources

LETTERS = sources.topic("letters", value=schemas.text())
RECORD = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
FLAGS = sources.table("flags", value=schemas.json("on boolean"))


def declared() -> Pipeline:
    pipeline = Pipeline("letters")
    pipeline.source("letters", LETTERS)
    pipeline.source("flags", FLAGS)
    pipeline.add_dataset("upper", lambda letters: letters, ["letters"])
    pipeline.add_dataset("flagged", lambda upper, flags: upper, ["upper", "flags"])
    pipeline.sink("lake", "flagged", sinks.parquet("lake"))
    return pipeline


def test_what_depends_on_what() -> None:
    pipeline = declared()
    pipeline.check()
    assert pipeline.order("flagged") == ["upper", "flagged"]
    assert pipeline.sources_of("flagged") == ["letters", "flags"]
    assert pipeline.streams("flagged") == ["letters"]
    assert (pipeline.group, pipeline.dead_letters) == ("letters", "letters.dead-letters")
    assert query_names(pipeline) == ["dead-letters-letters", "dead-letters-flags", "sink-lake"]
    assert shape(pipeline)["sink-lake"]["what it reads"] == ["topic letters"]


def test_raw_records_cannot_be_bad() -> None:
    pipeline = Pipeline("copy")
    pipeline.source("bytes", sources.topic("bytes", key=schemas.raw()))
    pipeline.sink("lake", "bytes", sinks.parquet("lake"))
    assert query_names(pipeline) == ["sink-lake"]


def test_rows_that_may_be_too_large_have_a_query_of_their_own() -> None:
    pipeline = Pipeline("copy")
    pipeline.source("bytes", sources.topic("bytes", key=schemas.raw()))
    pipeline.sink("copies", "bytes", sinks.topic("copies", too_large="dead-letter"))
    assert query_names(pipeline) == ["dead-letters-sink-copies", "sink-copies"]
    assert shape(pipeline)["dead-letters-sink-copies"] == {"what it reads": ["topic bytes"]}
    assert streams_of(pipeline)["dead-letters-sink-copies"] == streams_of(pipeline)["sink-copies"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda p: p.source("letters", LETTERS), "two sources or datasets called letters"),
        (lambda p: p.source("not-a-name", LETTERS), "'not-a-name' cannot be the name of a parameter"),
        (lambda p: p.add_dataset("x", print, ["upperr"]), "dataset x takes upperr, which is none. Did you mean upper?"),
        (
            lambda p: p.sink("other", "lettres", sinks.console()),
            "sink other writes lettres, which is none. Did you mean",
        ),
        (lambda p: p.sink("other", "flags", sinks.console()), "flags depends on no topic"),
        (lambda p: p.sink("other", "upper", sinks.parquet("lake")), "sinks lake and other both write to lake"),
        (lambda p: p.sink("lake", "upper", sinks.console()), "a name of letters, digits and underscores that no other"),
        (lambda p: p.sink("other", "upper", sinks.console(), mode="upsert"), "mode may be append, update, complete"),
        (lambda p: p.add_expectation("uper", "x", "true"), "uper, which is no dataset. Did you mean"),
        (lambda p: p.add_expectation("upper", "x", "true", on_fail="eat"), "on_fail may be warn, drop"),
        (lambda p: p.add_expectation("upper", "a b", "true"), "expectation 'a b' of upper: use letters"),
        (
            lambda p: p.sink("other", "upper", sinks.parquet_table("t"), mode="complete"),
            "a parquet table takes mode append only",
        ),
    ],
)
def test_what_cannot_work(change: Callable[[Pipeline], None], sentence: str) -> None:
    def declare() -> None:
        pipeline = declared()
        change(pipeline)
        pipeline.check()

    with pytest.raises(Sentence, match=re.escape(sentence)):
        declare()


def test_circles() -> None:
    pipeline = declared()
    pipeline.add_dataset("a", print, ["b"])
    pipeline.add_dataset("b", print, ["a"])
    pipeline.sink("other", "a", sinks.console())
    with pytest.raises(Sentence, match="datasets go in a circle: a -> b -> a"):
        pipeline.check()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: sources.topic(), "needs the name of a topic, or pattern"),
        (lambda: sources.topic("t", pattern="t.*"), "and not both"),
        (lambda: sources.topic("t", starting="yesterday"), "starting may be earliest, latest, offsets or a moment"),
        (lambda: sources.topic("t", max_per_trigger=0), "from 1 on"),
        (lambda: sources.topic("t", tombstones="eat"), "tombstones may be dead-letter or keep"),
        (lambda: sources.topic("t", key=schemas.json("a int")), "a key's schema may be"),
        (lambda: schemas.json(" "), "needs its fields"),
        (lambda: sinks.topic("t", too_large="cut"), "too_large may be stop or dead-letter, not 'cut'"),
        (lambda: schemas.json("at timestamp", epoch="h"), "epoch may be s, ms, us, ns, not 'h'"),
        (lambda: schemas.json("at timestamp", epoch="s", lossy=True), "leave epoch out, or lossy"),
        (lambda: schemas.avro(RECORD, registry="http://r", ids={1: RECORD}), "registry='…' or ids={…}, not both"),
        (lambda: schemas.avro(RECORD, ids={1: "{"}), "needs an Avro schema as JSON"),
        (lambda: schemas.avro("{"), "needs an Avro schema as JSON"),
        (lambda: schemas.avro('"string"'), "schema of a record"),
        (lambda: Pipeline("two words"), "made of letters, digits"),
        (lambda: sinks.parquet("lake", compact_after=1), "compact_after is a number of files from 2 on"),
    ],
)
def test_declarations_that_make_no_sense(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(Sentence, match=re.escape(sentence)):
        make()


def test_tasks_do_not_wait_for_what_is_not_there_yet() -> None:
    options = sources.stream_options(sources.topic("t"), "host:1")
    assert int(options["kafka.fetch.max.wait.ms"]) < 50, "every task would wait so long at its partition's end"
    assert int(options["kafka.max.poll.records"]) > 500, "Spark asks for two offsets after every poll"
    mine = sources.topic("t", options={"kafka.fetch.max.wait.ms": "100"})
    assert sources.stream_options(mine, "host:1")["kafka.fetch.max.wait.ms"] == "100"


def test_where_a_source_begins() -> None:
    options = sources.stream_options(sources.topic("t", starting="1970-01-01T00:00:01+00:00"), "host:1")
    assert options["startingTimestamp"] == "1000"
    options = sources.stream_options(sources.topic("t", starting={"t": {0: 5}}, max_per_trigger=9), "host:1")
    assert options["startingOffsets"] == '{"t": {"0": 5}}'
    assert options["maxOffsetsPerTrigger"] == "9"
    assert options["kafka.isolation.level"] == "read_committed"
    assert sources.stream_options(sources.topic(pattern="t.*"), "host:1")["subscribePattern"] == "t.*"
    assert sources.topic(pattern="t.*").reads("tea")
    assert not sources.topic(pattern="t.*").reads("coffee")


def test_a_moment_without_a_zone_is_one_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        first_of_two = sources.topic("t", starting="2026-10-25T02:30:00").starting
        winter = sources.topic("t", starting="2026-12-01T00:00:00").starting
    finally:
        monkeypatch.undo()
        time.tzset()
    assert first_of_two == sources.topic("t", starting="2026-10-25T00:30:00Z").starting, "nothing is passed over"
    assert winter == sources.topic("t", starting="2026-11-30T23:00:00Z").starting


def from_file(directory: Path, text: str, name: str) -> Pipeline:
    file = directory / name
    file.write_text(textwrap.dedent(text))
    return load(str(file))


YAML = """
    pipeline: errors
    sources:
      log: {topic: log, value: {json: "status int"}}
    datasets:
      errors: SELECT * FROM log WHERE status >= 500
      worst: SELECT * FROM errors WHERE status = 599
    sinks:
      lake: {from: worst, parquet: lake}
"""


def test_yaml(tmp_path: Path) -> None:
    pipeline = from_file(tmp_path, YAML, "errors.yaml")
    assert pipeline.order("worst") == ["errors", "worst"]
    assert pipeline.sources["log"] == sources.topic("log", value=schemas.json("status int"))
    assert pipeline.outputs["lake"].sink == sinks.parquet("lake")


def test_yaml_says_what_values_mean(tmp_path: Path) -> None:
    pipeline = from_file(
        tmp_path,
        f"""
        pipeline: moments
        dead_letter_options: {{kafka.max.request.size: 9000000, kafka.enable.idempotence: true}}
        sources:
          clicks: {{topic: clicks, value: {{json: "at timestamp", epoch: ms}}}}
          all: {{topic: all, value: {{json: "n tinyint", lossy: true}}}}
          known: {{topic: known, value: {{avro: '{RECORD}', ids: {{3: '{RECORD}'}}}}}}
          asked:
            topic: asked
            value: {{avro: '{RECORD}', registry: "http://r:1", registry_options: {{bearer.auth.token: 7}}}}
        sinks:
          out: {{from: clicks, topic: out, options: {{kafka.max.request.size: 9000000}}}}
        """,
        "moments.yaml",
    )
    assert pipeline.dead_letter_options == {"kafka.max.request.size": "9000000", "kafka.enable.idempotence": "true"}
    assert pipeline.outputs["out"].sink == sinks.topic("out", options={"kafka.max.request.size": "9000000"})
    for name, schema in (
        ("clicks", schemas.json("at timestamp", epoch="ms")),
        ("all", schemas.json("n tinyint", lossy=True)),
        ("known", schemas.avro(RECORD, ids={3: RECORD})),
        ("asked", schemas.avro(RECORD, registry="http://r:1", registry_options={"bearer.auth.token": "7"})),
    ):
        assert pipeline.sources[name] == sources.topic(name, value=schema)


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("pipeline: errors", "name: errors", "does not begin with the pipeline's name"),
        ("parquet: lake", "parqet: lake", "sink lake: parqet means nothing here. Did you mean parquet?"),
        ("topic: log", "topik: log", "source log: topik means nothing here. Did you mean topic?"),
        ('{json: "status int"}', "protobuf", "a schema is raw, text"),
        ("from: worst, ", "", "sink lake needs from: DATASET"),
        ("SELECT * FROM errors WHERE status = 599", "[1]", "dataset worst is to be an SQL query"),
        ("sources:", "sources: [", "is not YAML"),
        ("sinks:", "unused:", "unused means nothing here"),
    ],
)
def test_wrong_yaml(tmp_path: Path, before: str, after: str, sentence: str) -> None:
    assert before in YAML
    with pytest.raises(Sentence, match=re.escape(sentence)):
        from_file(tmp_path, YAML.replace(before, after), "errors.yaml")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1", "declares no pipeline: it needs `pipeline = Pipeline('name')`"),
        (
            "from odradek.pipelines import Pipeline\np, q = Pipeline('p'), Pipeline('q')",
            "declares 2 pipelines (p, q): give each a file of its own.",
        ),
        ("from odradek.apps.pipelines import Pipeline", "say `from odradek.pipelines import Pipeline, "),
        ("from odradek.pipelines import Pipelines", "cannot be loaded: ImportError in line 1: cannot import name"),
        ("x = 1 +", "SyntaxError in line 1"),
        ("\n1 / 0", "ZeroDivisionError in line 2: division by zero."),
        ("import no_such_module", f"needs the module no_such_module: install it for {sys.executable}"),
        ("from odradek.pipelines import Pipeline\np = Pipeline('p')", "pipeline p has no source"),
    ],
)
def test_wrong_python(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(Sentence, match=re.escape(sentence)):
        from_file(tmp_path, text, "wrong.py")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(Sentence, match="there is no file"):
        load(str(tmp_path / "none.py"))
    with pytest.raises(Sentence, match="is a directory: name a pipeline's file"):
        load(str(tmp_path))
