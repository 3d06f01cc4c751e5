"""Dead letters: too large to be kept whole, of topics that were recreated, and sent back once, however chosen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.pipelines.test_recreated_topics import recreate

from odradek.apps.pipelines.dead_letters import FIRST_BYTES, PREFIX, replay
from odradek.apps.pipelines.trial import Trial
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import Session
from odradek.clients import connect
from odradek.testing.node import RunningNode

Load = Callable[[Path], Trial]
Written = Callable[..., Path]

NUMBERS = """
    pipeline = Pipeline("numbers")
    value = schemas.json("n bigint, text string", required=["n"])
    pipeline.source("numbers", sources.topic("numbers", value=value))

    @pipeline.dataset
    def all_of_them(numbers):
        return numbers.select("n", "text")

    pipeline.sink("lake", all_of_them, sinks.parquet("lake", files=1))
"""
LARGE = {"max.request.size": "9000000"}


def make_topic(bootstrap: str, name: str) -> None:
    async def make() -> None:
        async with connect(bootstrap).admin() as admin:
            await admin.create_topic(name, partitions=2, configs={"max.message.bytes": "8000000"})

    asyncio.run(make())


def send(bootstrap: str, topic: str, *records: tuple[bytes, list[tuple[str, bytes | None]]]) -> None:
    async def write() -> None:
        async with connect(bootstrap, LARGE).producer() as producer:
            for value, headers in records:
                await producer.send(topic, value, partition=0, headers=headers)

    asyncio.run(write())


def sent_back(trial: Trial, topic: str = "numbers.dead-letters", **wishes: Any) -> tuple[int, int]:
    given = {"group": "numbers.replay", "to": None, "reasons": [], "dry_run": False, **wishes}
    return asyncio.run(replay(Session({"bootstrap.servers": trial.bootstrap}), topic, **given))


def test_a_record_that_is_too_large_for_a_dead_letter_stops_nothing(
    pipeline: Load, written: Written, kafka: RunningNode
) -> None:
    make_topic(kafka.bootstrap_servers, "numbers")
    trial = pipeline(written(NUMBERS))
    nearly = b"x" * 1_048_000  # It fits by itself, and does not with the headers of a dead letter.
    huge = b"y" * 5_000_000
    headers = [("trace", b"1"), ("nothing", None)]
    send(kafka.bootstrap_servers, "numbers", (nearly, headers), (huge, [("h", b"z" * 5_000)]), (b"?", headers))
    trial.send("numbers", {"n": 1}, partition=0)
    ran = trial.run()
    assert [row["n"] for row in trial.rows("lake")] == [1]
    assert ran.dead_letters == 3
    letters = trial.dead_letters()
    assert [(each.offset, each.reason, each.truncated, each.size_bytes) for each in letters] == [
        (0, "the value is not JSON", "value", 1_048_000 + len(b"trace1nothing") + 20),
        (1, "the value is not JSON", "value,headers", 5_000_000 + 5_001 + 10),
        (2, "the value is not JSON", "", None),
    ]
    assert [each.value for each in letters] == [nearly[:FIRST_BYTES], huge[:FIRST_BYTES], b"?"]
    assert [list(each.headers) for each in letters] == [headers, [], headers]
    assert sent_back(trial) == (1, 2), "what is not whole is not sent"

    make_topic(kafka.bootstrap_servers, "kept.dead-letters")
    options = 'Pipeline("kept", dead_letter_options={"kafka.max.request.size": "9000000"})'
    kept = Trial(
        str(written(NUMBERS.replace('Pipeline("numbers")', options), "kept.py")),
        trial.spark,
        trial.bootstrap,
        trial.directory / "kept",
    )
    kept.run()
    assert [len(each.value or b"") for each in kept.dead_letters()][:2] == [len(nearly), len(huge)]
    assert sent_back(trial, topic="kept.dead-letters", group="kept.replay")[0] >= 3, "also those of five megabytes"


def test_a_row_that_is_too_large_for_a_topic(pipeline: Load, written: Written, kafka: RunningNode) -> None:
    for topic in ("numbers", "copies"):
        make_topic(kafka.bootstrap_servers, topic)
    to_topic = NUMBERS.replace('sinks.parquet("lake", files=1)', 'sinks.topic("copies"OPTIONS)')
    trial = pipeline(written(to_topic.replace("OPTIONS", "")))
    send(kafka.bootstrap_servers, "numbers", (b'{"n": 1, "text": "%s"}' % (b"x" * 5_000_000), []))
    for _ in range(2):
        with pytest.raises(Sentence, match=r"sink-lake: a record is too large .* raise kafka.max.request"):
            trial.run()
    options = ', options={"kafka.max.request.size": "9000000"}'
    Trial(str(written(to_topic.replace("OPTIONS", options))), trial.spark, trial.bootstrap, trial.directory).run()
    assert [row["n"] for row in trial.rows("lake")] == [1], "it has gone on from there"


def test_a_row_that_is_too_large_can_be_a_dead_letter(pipeline: Load, written: Written, kafka: RunningNode) -> None:
    make_topic(kafka.bootstrap_servers, "numbers")
    to_topic = NUMBERS.replace('sinks.parquet("lake", files=1)', 'sinks.topic("copies", too_large="dead-letter")')
    with pytest.raises(Sentence, match=r"has no _topic, _partition, .*: keep these columns, or say too_large='stop'"):
        pipeline(written(to_topic)).run()
    trial = pipeline(written(to_topic.replace('numbers.select("n", "text")', "numbers")))
    near, far = b"x" * 1_047_900, b"x" * 5_000_000
    for text in (b"small", near, far):
        send(kafka.bootstrap_servers, "numbers", (b'{"n": 1, "text": "%s"}' % text, []))
    ran = trial.run(checkpoint=str(trial.directory / "other"))
    assert [len(row["text"]) for row in trial.rows("lake")] == [5, len(near)]
    (letter,) = trial.dead_letters()
    assert (letter.offset, letter.truncated, letter.dataset) == (2, "value", "all_of_them")
    assert letter.reason.startswith("the record for topic copies is too large: 50001")
    assert ran.dead_letters == 1
    assert sum(trial.committed().values()) == 3


def test_each_is_sent_back_once(pipeline: Load, written: Written) -> None:
    trial = pipeline(written(NUMBERS))
    trial.send("numbers", "?", b"\xff", "[1]", partition=0)
    trial.run()
    assert sent_back(trial, reasons=["UTF-8"], dry_run=True) == (1, 2)
    assert sent_back(trial, reasons=["UTF-8"]) == (1, 2)
    assert sent_back(trial, reasons=["UTF-8"]) == (0, 2), "each once"
    assert sent_back(trial) == (2, 0), "without the one that was sent before"
    assert sent_back(trial) == (0, 0)
    assert len(trial.records("numbers")) == 6

    before = trial.dead_letters()
    recreate(trial, "numbers", b"\xff", "?")
    trial.run(topic_recreated="start-over")
    letters = trial.dead_letters()
    assert len(letters) == len(before) + 2, "at the offsets of others, and not taken for those"
    assert len({each.topic_id for each in letters}) == 2
    assert all(each.topic_id for each in letters)
    assert sent_back(trial, reasons=["UTF-8"]) == (1, 1)


def test_headers_of_a_dead_letter(pipeline: Load, written: Written) -> None:
    trial = pipeline(written(NUMBERS))
    trial.send("numbers", "?", partition=1)
    trial.run()
    held = trial.spark.read.format("kafka").option("kafka.bootstrap.servers", trial.bootstrap)
    rows = held.option("subscribe", "numbers.dead-letters").option("includeHeaders", "true").load()
    (row,) = rows.select("headers").collect()
    told = {each.key.removeprefix(PREFIX): bytes(each.value).decode() for each in row.headers}
    assert told.pop("timestamp").isdecimal()
    assert len(told.pop("topic-id")) == 22
    assert told == {
        "reason": "the value is not JSON", "pipeline": "numbers", "topic": "numbers", "partition": "1", "offset": "0"
    }  # fmt: skip
