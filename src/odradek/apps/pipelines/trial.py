"""A pipeline on trial: a file, a node, a session and a directory, with short ways to feed it and look at its sinks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.apps.pipelines import sinks
from odradek.apps.pipelines.brokers import Brokers
from odradek.apps.pipelines.dead_letters import DeadLetter, read_dead_letters
from odradek.apps.pipelines.definition import load
from odradek.apps.pipelines.pipeline import Pipeline
from odradek.apps.pipelines.progress import Run
from odradek.apps.pipelines.runner import run
from odradek.apps.pipelines.sources import Topic
from odradek.apps.pipelines.wishes import Wishes
from odradek.apps.terminal.session import Session
from odradek.client.cluster import TopicPartition
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 2


class Trial:
    """What a test may do with a pipeline. Its topics exist, with two partitions each."""

    def __init__(self, pipeline: str | Pipeline, spark: SparkSession, bootstrap: str, directory: Path) -> None:
        self.pipeline = load(pipeline) if isinstance(pipeline, str) else pipeline
        self.spark = spark
        self.directory = directory
        self.bootstrap = bootstrap
        self._session = Session({"bootstrap.servers": bootstrap})
        with Brokers(self._session) as brokers:
            for source in self.pipeline.sources.values():
                for name in (source if isinstance(source, Topic) else source.stream).topics:
                    brokers.create_topic(name, PARTITIONS)

    def dataset(self, name: str) -> Callable[..., DataFrame]:
        """A dataset's function, to be tried on small frames."""
        return self.pipeline.datasets[name].function

    def send(self, topic: str, *values: object, key: str | bytes | None = None, partition: int | None = None) -> None:
        """Write records: bytes and texts as they are, None as a tombstone, everything else as JSON."""
        self.send_records(topic, [(key, value) for value in values], partition=partition)

    def send_records(
        self, topic: str, records: Sequence[tuple[str | bytes | None, object]], *, partition: int | None = None
    ) -> None:
        """Write pairs of key and value."""

        async def write() -> None:
            async with self._session.producer({}) as producer:
                receipts = [
                    await producer.submit(topic, _bytes(value), key=_bytes(key), partition=partition)
                    for key, value in records
                ]
                await asyncio.gather(*receipts)

        asyncio.run(write())

    def run(self, **wishes: Any) -> Run:
        """Read all there is, then stop; what was done."""
        given = {"data": str(self.directory), "available_now": True, "quiet": True, **wishes}
        return run(self.pipeline, self._session, Wishes(**given), spark=self.spark)

    def rows(self, sink: str) -> list[dict[str, Any]]:
        """What is in a sink: rows of files and tables, JSON of topics."""
        to = self.pipeline.outputs[sink].sink
        if isinstance(to, sinks.ToTopic):
            return [json.loads(value) for _, value in self.records(to.name) if value is not None]
        if isinstance(to, sinks.Console):
            raise TypeError(f"sink {sink} is the terminal: there is nothing to read")
        return [row.asDict(recursive=True) for row in sinks.read(self.spark, to, str(self.directory)).collect()]

    def records(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """Keys and values of a topic, partition after partition."""
        held = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        rows = held.option("subscribe", topic).load().orderBy("partition", "offset").select("key", "value").collect()
        return [(_plain(row.key), _plain(row.value)) for row in rows]

    def dead_letters(self) -> list[DeadLetter]:
        """The records that did not fit, each once."""
        letters, _ = asyncio.run(read_dead_letters(self._session, self.pipeline.dead_letters))
        return sorted(letters, key=lambda each: each.origin)

    def committed(self) -> dict[TopicPartition, int]:
        """What the pipeline's group has committed."""

        async def ask() -> dict[TopicPartition, int]:
            async with self._session.admin() as admin:
                held = await admin.group_offsets(self.pipeline.group)
            return {at: each.offset for at, each in held.items() if not isinstance(each, KafkaError)}

        return asyncio.run(ask())


def _bytes(value: object) -> bytes | None:
    match value:
        case None | bytes():
            return value
        case str():
            return value.encode()
    return json.dumps(value).encode()


def _plain(held: bytearray | None) -> bytes | None:
    return None if held is None else bytes(held)
