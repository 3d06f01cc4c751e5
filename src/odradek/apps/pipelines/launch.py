"""Makes a pipeline's queries of its frames and sinks, and starts and stops them together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.apps.pipelines import dead_letters, expectations, failures, schemas, sinks, sources
from odradek.apps.pipelines.agreement import check_columns
from odradek.apps.pipelines.brokers import Brokers
from odradek.apps.pipelines.checkpoint import Checkpoint, batch_offsets
from odradek.apps.pipelines.pipeline import Output, Pipeline
from odradek.apps.pipelines.progress import Run
from odradek.apps.pipelines.queries import refusing, streams_of
from odradek.apps.pipelines.recreated import TopicWatch
from odradek.apps.pipelines.registry import Registries
from odradek.apps.pipelines.session import is_of_ended_jvm
from odradek.apps.pipelines.sources import Source, Table, Topic
from odradek.apps.pipelines.tables import Following
from odradek.apps.pipelines.wishes import Wishes
from odradek.values import replace

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class Queries:
    """Those of one run."""

    def __init__(
        self,
        pipeline: Pipeline,
        checkpoint: Checkpoint,
        brokers: Brokers,
        wishes: Wishes,
        running: Run,
        spark: SparkSession,
        topics: TopicWatch,
        registries: Registries,
    ) -> None:
        self.spark = spark
        self.started: dict[str, StreamingQuery] = {}
        self._pipeline = pipeline
        self._checkpoint = checkpoint
        self._brokers = brokers
        self._wishes = wishes
        self._run = running
        self._topics = topics
        self._registries = registries
        self._writers: dict[str, Any] = {}

    def active(self) -> dict[str, StreamingQuery]:
        """Those that run."""
        return {name: each for name, each in self.started.items() if each.isActive}

    def failed(self) -> Iterator[tuple[str, PySparkException]]:
        """Those that ended with an exception."""
        from pyspark.errors import PySparkException

        for name, query in self.started.items():
            failure = query.exception() if not query.isActive else None
            if isinstance(failure, PySparkException):
                yield name, failure

    def go_on(self, name: str) -> None:
        """Start one again that was stopped, from its checkpoint."""
        self.started[name] = self._writers[name].start()

    def start(self) -> None:
        """Start every query; if one cannot be, none is left running."""
        from pyspark.errors import PySparkException

        opened: dict[str, DataFrame] = {}
        frames: dict[str, DataFrame] = {}
        for name, declared in self._pipeline.sources.items():
            source = resolved(self._registries, name, declared)
            stream = source if isinstance(source, Topic) else source.stream
            opened[name] = sources.open_stream(
                self.spark, stream, self._brokers.bootstrap, fail_on_data_loss=not self._wishes.allow_data_loss
            )
            if isinstance(source, Table):
                frames[name] = sources.open_table(self.spark, source, self._brokers.bootstrap)
            else:
                frames[name] = schemas.good(opened[name])
        starting = ""
        try:
            written: dict[str, DataFrame] = {}
            for output in self._pipeline.outputs.values():
                starting = f"sink-{output.name}"
                written[output.name] = frames_of(self._pipeline, frames.__getitem__, output.dataset, frames)
            check_columns(self.spark, self._pipeline, self._checkpoint, written, self._wishes.data)
            kept: Any = {"topic_ids": self._topics.topic_ids, "limit_bytes": self._letter_bytes()}
            for name in refusing(self._pipeline):
                starting = f"dead-letters-{name}"
                self._start_dead_letters(starting, dead_letters.records(opened[name], self._pipeline.name, **kept))
            for name, expected in self._pipeline.doubted.items():
                starting = f"dead-letters-{name}"
                failing = expectations.failing(self._pipeline.unchecked(name, frames), expected)
                self._start_dead_letters(starting, dead_letters.rows(failing, self._pipeline.name, name, **kept))
            for name, sink in self._pipeline.sized.items():
                starting = f"dead-letters-{name}"
                output = self._pipeline.outputs[name.removeprefix("sink-")]
                expectations.need_origin(written[output.name], output.dataset, "too_large='stop'")
                large = sinks.too_large(written[output.name], sink, self._record_bytes(sink))
                self._start_dead_letters(
                    starting, dead_letters.rows(large, self._pipeline.name, output.dataset, **kept)
                )
            for output in self._pipeline.outputs.values():
                starting = f"sink-{output.name}"
                self._start_sink(starting, output, written[output.name])
        except PySparkException as failure:
            self.stop()
            raise failures.analysis(starting, failure) from failure
        except BaseException:
            self.stop()
            raise

    def _start_dead_letters(self, name: str, letters: DataFrame) -> None:
        written = letters.writeStream.format("kafka").option("kafka.bootstrap.servers", self._brokers.bootstrap)
        written = written.option("topic", self._pipeline.dead_letters).options(**self._pipeline.dead_letter_options)
        self._launch(name, written)

    def _letter_bytes(self) -> int:
        """How large a dead letter may be: what producers send, and what the topic takes."""
        if not refusing(self._pipeline) and not self._pipeline.has_letters_of_rows:
            return dead_letters.LIMIT_BYTES
        return self._limit(self._pipeline.dead_letter_options, self._pipeline.dead_letters)

    def _record_bytes(self, sink: sinks.ToTopic) -> int:
        return self._limit(dict(sink.options), sink.name)

    def _limit(self, options: Mapping[str, str], topic: str) -> int:
        sent = int(options.get("kafka.max.request.size", dead_letters.LIMIT_BYTES))
        return min(sent, self._brokers.largest_batch(topic) or sent)

    def _start_sink(self, name: str, output: Output, rows: DataFrame) -> None:
        self._launch(
            name,
            sinks.writer(
                rows,
                output.sink,
                mode=output.mode,
                bootstrap=self._brokers.bootstrap,
                base=self._wishes.data,
                writer_id=f"{self._checkpoint.writer_id}/{output.name}",
                following=self._following(name),
                limit_bytes=self._record_bytes(self._pipeline.sized[name]) if name in self._pipeline.sized else None,
            ),
        )

    def _following(self, query: str) -> Following:
        """What a table asks: from where its rows come, and whether older ones may still come."""
        streams = streams_of(self._pipeline)[query]
        names = {name for each in streams for name in each.topics}
        only = min(names) if len(names) == 1 and not any(each.pattern for each in streams) else None
        place = Path(self._checkpoint.query(query))
        return Following(
            topic=only,
            ids=lambda: self._topics.incarnations,
            positions=lambda number: batch_offsets(place, number) if self._checkpoint.is_local else None,
            ends=lambda: dict(self._run.ends),
        )

    def _launch(self, name: str, writer: Any) -> None:
        """Only now does anything run."""
        if self._wishes.available_now:
            writer = writer.trigger(availableNow=True)
        elif self._pipeline.trigger:
            writer = writer.trigger(processingTime=self._pipeline.trigger)
        self._writers[name] = writer.option("checkpointLocation", self._checkpoint.query(name))
        self.go_on(name)

    def stop(self) -> None:
        """End those that run, each with what it has finished."""
        try:
            for query in self.started.values():
                if query.isActive:
                    query.stop()
        except Exception as failure:
            if not is_of_ended_jvm(failure):
                raise


def frames_of(
    pipeline: Pipeline, opened: Callable[[str], DataFrame], wanted: str, frames: dict[str, DataFrame] | None = None
) -> DataFrame:
    """The frame of a dataset, its sources opened by a function; what Spark does not understand is a Sentence."""
    from pyspark.errors import PySparkException

    frames = {} if frames is None else frames
    for name in pipeline.sources_of(wanted):
        if name not in frames:
            frames[name] = opened(name)
    try:
        return pipeline.build(wanted, frames)
    except PySparkException as failure:
        raise failures.analysis(f"dataset {wanted}", failure) from failure


def resolved(registries: Registries, name: str, source: Source) -> Source:
    """A source with the schemas that its records were written with, as far as they are known."""
    stream = source if isinstance(source, Topic) else source.stream
    known = replace(stream, schema=registries.resolve(name, stream.schema, stream.topics))
    return known if isinstance(source, Topic) else replace(source, stream=known)
