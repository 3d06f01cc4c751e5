"""A topic is deleted and created again, between runs and during one: nothing of the new one is missed in silence."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.apps.pipelines.checkpoint import OWNER
from odradek.apps.pipelines.trial import Trial
from odradek.apps.terminal.sentence import Sentence
from odradek.client.cluster import TopicPartition
from odradek.clients import connect
from odradek.protocol.errors import ErrorCode, KafkaError

Load = Callable[[Path], Trial]
Written = Callable[..., Path]
PATIENCE_S = 120.0

LOGS = """
    pipeline = Pipeline("logs")
    pipeline.source("logs", sources.topic(pattern="logs-.*", value=schemas.json("n bigint", required=["n"])))

    @pipeline.dataset
    def numbers(logs):
        return logs.select("n", "_topic")

    pipeline.sink("lake", numbers, sinks.parquet("lake", files=1))
"""


def recreate(trial: Trial, topic: str, *values: object) -> None:
    """Another topic of that name, with one partition and these values in it."""

    async def again() -> None:
        async with connect(trial.bootstrap).admin() as admin:
            await admin.delete_topics([topic])
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    try:
                        await admin.create_topic(topic, partitions=1)
                        return
                    except KafkaError as failure:
                        if failure.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                            raise
                        await asyncio.sleep(0.05)

    asyncio.run(again())
    trial.send(topic, *values, partition=0)


def create(trial: Trial, *topics: str) -> None:
    async def make() -> None:
        async with connect(trial.bootstrap).admin() as admin:
            for topic in topics:
                await admin.create_topic(topic, partitions=2)

    asyncio.run(make())


def rows(trial: Trial, topic: str) -> list[int]:
    return sorted(row["n"] for row in trial.rows("lake") if row["_topic"] == topic)


def test_recreated_between_two_runs(pipeline: Load, written: Written) -> None:
    trial = pipeline(written(LOGS))
    create(trial, "logs-a", "logs-b")
    trial.send("logs-a", {"n": 1}, {"n": 2}, "?", partition=0)
    trial.send("logs-b", {"n": 100}, partition=1)
    trial.run()

    recreate(trial, "logs-a", *({"n": number} for number in range(10, 15)), "?")
    trial.send("logs-b", {"n": 101}, partition=1)
    for _ in range(2):
        with pytest.raises(Sentence, match=r"topic logs-a was deleted and recreated since it was read .*start-over"):
            trial.run(allow_data_loss=True)
    ran = trial.run(topic_recreated="start-over")
    assert rows(trial, "logs-a") == [1, 2, 10, 11, 12, 13, 14], "from its first record on"
    assert rows(trial, "logs-b") == [100, 101], "the others go on where they were"
    assert ran.dead_letters == 1
    assert trial.committed() == {
        TopicPartition("logs-a", 0): 6,
        TopicPartition("logs-b", 0): 0,
        TopicPartition("logs-b", 1): 2,
    }

    recreate(trial, "logs-a", {"n": 20})
    with pytest.raises(Sentence, match="topic logs-a was deleted and recreated") as refused:
        trial.run()
    assert "--allow-data-loss" not in str(refused.value)
    trial.run(topic_recreated="skip")
    trial.send("logs-a", {"n": 21}, partition=0)
    trial.run()
    assert rows(trial, "logs-a")[-2:] == [14, 21]


def test_a_checkpoint_without_ids_goes_on(pipeline: Load, written: Written, capfd: pytest.CaptureFixture[str]) -> None:
    """As versions before wrote it: nothing is read twice, and from then on a recreated topic is noticed."""
    trial = pipeline(written(LOGS))
    create(trial, "logs-a")
    trial.send("logs-a", {"n": 1}, partition=0)
    trial.run()
    (owner,) = (trial.directory / ".checkpoints").glob(f"*/{OWNER}")
    owner.write_text(
        json.dumps({name: each for name, each in json.loads(owner.read_text()).items() if name != "topics"})
    )
    trial.send("logs-a", {"n": 2}, partition=0)
    capfd.readouterr()
    for said in (1, 0):
        trial.run(quiet=False)
        assert capfd.readouterr().err.count("does not know the ids of its topics") == said
    assert rows(trial, "logs-a") == [1, 2]
    recreate(trial, "logs-a", *({"n": number} for number in range(10, 15)))
    with pytest.raises(Sentence, match="topic logs-a was deleted and recreated since it was read"):
        trial.run()


def test_recreated_while_it_is_read(pipeline: Load, written: Written) -> None:
    trial = pipeline(written(LOGS))
    create(trial, "logs-a", "logs-b")
    trial.send("logs-a", *({"n": number} for number in range(5)), partition=0)
    raised: list[Sentence] = []

    def run() -> None:
        try:
            trial.run(available_now=False)
        except Sentence as failure:
            raised.append(failure)

    running = threading.Thread(target=run)
    running.start()
    deadline = time.monotonic() + PATIENCE_S
    while trial.committed().get(TopicPartition("logs-a", 0)) != 5:
        assert time.monotonic() < deadline
        assert running.is_alive(), raised
        time.sleep(0.1)
    recreate(trial, "logs-a", *({"n": number} for number in range(10, 20)))
    running.join(PATIENCE_S)
    assert not running.is_alive()
    assert "deleted and recreated while the pipeline read: run it again with --topic-recreated" in str(raised[0])
    trial.run(topic_recreated="start-over")
    assert set(range(10, 20)) <= set(rows(trial, "logs-a"))
    assert rows(trial, "logs-a")[:5] == list(range(5))
