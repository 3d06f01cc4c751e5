"""Runs a pipeline: starts its queries, commits offsets behind them, tells how it goes, and ends them together."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.apps.pipelines import dead_letters, expectations, failures, schemas, sinks, sources
from odradek.apps.pipelines.agreement import check_columns, owned, owner_of
from odradek.apps.pipelines.brokers import Brokers, lost_by_query
from odradek.apps.pipelines.checkpoint import Checkpoint, batch_offsets, refusing
from odradek.apps.pipelines.compaction import compact, read_log, small_files
from odradek.apps.pipelines.pipeline import Output, Pipeline
from odradek.apps.pipelines.progress import MetricsServer, Run, reports_after
from odradek.apps.pipelines.recreated import TopicWatch
from odradek.apps.pipelines.registry import Registries
from odradek.apps.pipelines.session import is_of_ended_jvm, open_session
from odradek.apps.pipelines.sources import Source, Table, Topic
from odradek.apps.pipelines.tables import Following
from odradek.apps.pipelines.teller import Teller, doing
from odradek.apps.pipelines.timings import Timings
from odradek.apps.pipelines.watch import BrokerWatch
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import Session
from odradek.client.cluster import TopicPartition
from odradek.values import replace, value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S = 0.2
"""How often a run looks what its queries have done."""

STATUS_S = 1.0
"""How often a run asks Spark what its queries do at the moment."""

AGAIN_S = 2.0
"""After how long offsets that could not be committed are committed again."""

BRIEF_RECORDS = 100_000
"""Up to so many records a run with an end is over before a JVM made for long work would pay."""


@value
class Wishes:
    """What whoever runs a pipeline may choose."""

    data: str = "."
    checkpoint: str | None = None
    available_now: bool = False
    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    allow_data_loss: bool = False
    topic_recreated: str | None = None
    """`start-over` or `skip`: what becomes of a topic that was deleted and created again; None stops the run."""
    form: str = "table"
    quiet: bool = False
    metrics_port: int | None = None
    timings: bool = False

    def checkpoint_of(self, pipeline: Pipeline) -> str:
        return self.checkpoint or sinks.located(self.data, f".checkpoints/{pipeline.name}")

    def checkpoint_for(self, pipeline: Pipeline) -> Checkpoint:
        """A pipeline's checkpoint, which knows what to type in order to get to it again."""
        options = [f"--data {self.data}"] if self.data != "." else []
        options += [f"--checkpoint {self.checkpoint}"] if self.checkpoint else []
        return Checkpoint(self.checkpoint_of(pipeline), pipeline, options=" ".join(options))


def run(
    pipeline: Pipeline,
    session: Session,
    wishes: Wishes,
    *,
    spark: SparkSession | None = None,
    timings: Timings | None = None,
) -> Run:
    """Run a pipeline to its end, if it has one; what it did. Raises a Sentence where something is wrong.

    A session that is handed in is used and left as it is.
    """
    pipeline.check()
    checkpoint = wishes.checkpoint_for(pipeline)
    with ExitStack() as open_things:
        teller = open_things.enter_context(Teller(pipeline.name, wishes.form, quiet=wishes.quiet, timings=timings))
        brokers = open_things.enter_context(Brokers(session))
        with teller.during(f"asking {brokers.bootstrap} for the topics"):
            brokers.prepare(pipeline, needs_dead_letters=bool(refusing(pipeline)) or pipeline.has_letters_of_rows)
        with teller.during("taking its checkpoint"):
            open_things.enter_context(checkpoint.taken())
        check_lakes(pipeline, checkpoint, wishes.data)
        if checkpoint.is_local:
            open_things.enter_context(owned(parquet_places(pipeline, wishes.data), checkpoint))
        running = Run(pipeline.name, streams_of(pipeline))
        topics = _topic_watch(pipeline, checkpoint, brokers, teller.note)
        with teller.during("comparing the checkpoint with the topics"):
            topics.begin(wishes.topic_recreated)
            _look_back(running, pipeline, checkpoint, brokers, wishes)
        registries = Registries(session.registry)
        with teller.during("asking schema registries"):
            for name, source in pipeline.sources.items():
                resolved(registries, name, source)  # One that does not answer is no reason to start Spark.
        metrics = None
        if wishes.metrics_port is not None:
            metrics = open_things.enter_context(MetricsServer(running, wishes.metrics_port))
        spark = spark or open_session(
            f"odradek {pipeline.name}",
            master=wishes.master,
            conf=dict(wishes.conf),
            log_file=checkpoint.log_file,
            formats=pipeline.formats,
            brief=is_brief(running),
            held=checkpoint.lock,
            during=teller.during,
        )
        if metrics is not None:
            teller.note(f"metrics are at http://127.0.0.1:{metrics.port}/metrics.")
        running.began = time.monotonic()  # Rates are those of the pipeline, without the start of Spark.
        streams = [each for read in streams_of(pipeline).values() for each in read]
        watch = BrokerWatch(
            session,
            running.topics,
            teller.say,
            topic_ids=topics.ask_of,
            read_committed=_read_committed(streams),
        )
        open_things.enter_context(watch.watching())
        shift = _Shift(pipeline, checkpoint, brokers, wishes, running, spark, teller, watch, topics, registries)
        with teller.during("starting the queries"):
            shift.start()
        teller.follow(running)
        with teller.timings.phase("batches"):
            shift.work()
    teller.end(pipeline.dead_letters, with_timings=wishes.timings)
    return running


def is_brief(running: Run) -> bool:
    """Whether a run will be over soon."""
    return running.goal is not None and running.goal <= BRIEF_RECORDS


def check_lakes(pipeline: Pipeline, checkpoint: Checkpoint, base: str) -> None:
    """A Sentence if files of a sink were written under another checkpoint: Spark knows by a batch's number whether it
    is in the sink already, and would pass over the first ones of this checkpoint without a word."""
    if not checkpoint.is_local:
        return
    for name, place in parquet_places(pipeline, base).items():
        held = read_log(place).latest
        owner = owner_of(place)
        if held > checkpoint.begun(f"sink-{name}") or (held >= 0 and owner not in (None, checkpoint.writer_id)):
            raise Sentence(
                f"sink {name}: {place} was written under another checkpoint (up to batch {held}), and Spark would take "
                "new batches for those: move it away, give the sink another path, or write it anew: "
                f"`{checkpoint.reset_command(sink=name, delete_files=True)}`."
            )


def parquet_places(pipeline: Pipeline, base: str) -> dict[str, Path]:
    """Where sinks write that are plain Parquet files on a local disk."""
    places = {
        name: sinks.located(base, output.sink.path)
        for name, output in pipeline.outputs.items()
        if isinstance(output.sink, sinks.Parquet)
    }
    return {name: Path(place) for name, place in places.items() if "://" not in place}


def streams_of(pipeline: Pipeline) -> dict[str, tuple[Topic, ...]]:
    """Of every query the streams that it reads."""
    found: dict[str, tuple[Topic, ...]] = {f"dead-letters-{name}": (each,) for name, each in refusing(pipeline).items()}
    for name in pipeline.doubted:
        streams = [pipeline.sources[each] for each in pipeline.streams(name)]
        found[f"dead-letters-{name}"] = tuple(each for each in streams if isinstance(each, Topic))
    for name, output in pipeline.outputs.items():
        streams = [pipeline.sources[each] for each in pipeline.streams(output.dataset)]
        found[f"sink-{name}"] = tuple(each for each in streams if isinstance(each, Topic))
        if f"sink-{name}" in pipeline.sized:
            found[f"dead-letters-sink-{name}"] = found[f"sink-{name}"]
    return found


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


class _Shift:
    """One run's queries, from start to end."""

    def __init__(
        self,
        pipeline: Pipeline,
        checkpoint: Checkpoint,
        brokers: Brokers,
        wishes: Wishes,
        running: Run,
        spark: SparkSession,
        teller: Teller,
        watch: BrokerWatch,
        topics: TopicWatch,
        registries: Registries,
    ) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._checkpoint = checkpoint
        self._brokers = brokers
        self._wishes = wishes
        self._run = running
        self._teller = teller
        self._watch = watch
        self._topics = topics
        self._registries = registries
        self._queries: dict[str, StreamingQuery] = {}
        self._writers: dict[str, Any] = {}
        self._tidied: dict[str, int | None] = {}
        self._stopping = threading.Event()
        self._committed: dict[TopicPartition, int] = {}
        self._complaint = ""
        self._refused_at = 0.0

    def start(self) -> None:
        """Start every query; if one cannot be, none is left running."""
        from pyspark.errors import PySparkException

        opened: dict[str, DataFrame] = {}
        frames: dict[str, DataFrame] = {}
        for name, declared in self._pipeline.sources.items():
            source = resolved(self._registries, name, declared)
            stream = source if isinstance(source, Topic) else source.stream
            opened[name] = sources.open_stream(
                self._spark, stream, self._brokers.bootstrap, fail_on_data_loss=not self._wishes.allow_data_loss
            )
            if isinstance(source, Table):
                frames[name] = sources.open_table(self._spark, source, self._brokers.bootstrap)
            else:
                frames[name] = schemas.good(opened[name])
        starting = ""
        try:
            written: dict[str, DataFrame] = {}
            for output in self._pipeline.outputs.values():
                starting = f"sink-{output.name}"
                written[output.name] = frames_of(self._pipeline, frames.__getitem__, output.dataset, frames)
            check_columns(self._spark, self._pipeline, self._checkpoint, written, self._wishes.data)
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
            self._stop_queries()
            raise failures.analysis(starting, failure) from failure
        except BaseException:
            self._stop_queries()
            raise

    def work(self) -> None:
        """Until the queries have ended by themselves, one has failed, or somebody wants them to stop."""
        asked_at = 0.0
        try:
            with _signals(self._stopping):
                while not self._stopping.is_set():
                    active = {name: each for name, each in self._queries.items() if each.isActive}
                    self._run.ends = self._run.ends | self._watch.ends
                    if time.monotonic() - asked_at > STATUS_S:
                        asked_at = time.monotonic()
                        self._tell(active)
                        self._topics.look(self._watch.topic_ids or self._topics.topic_ids)
                    self._look()
                    if self._learned():
                        continue
                    self._raise_failure()
                    if not active:
                        break
                    if not self._wishes.available_now:
                        self._tidy()
                    self._stopping.wait(LOOK_S)
                self._teller.doing("stopping")
                self._stop_queries()
                self._look()
                self._raise_failure()
                self._ask_topics()
                self._tidy()
                self._ask_ends()
        except Sentence:
            raise
        except Exception as failure:
            if not is_of_ended_jvm(failure):
                raise
            if not self._stopping.is_set():
                raise failures.no_jvm(self._checkpoint.log_file) from failure
            # Who stops a whole process group stops Spark's JVM, too. What it had not finished is done again.
        finally:
            self._stop_queries()
            self._run.seconds = time.monotonic() - self._run.began

    def _tell(self, active: Mapping[str, StreamingQuery]) -> None:
        """What the run does now, or what keeps it from doing anything."""
        away = self._watch.away
        if away:
            self._teller.doing(f"waiting for {away}")
            return
        statuses = {}
        for name, query in active.items():
            batch = self._checkpoint.begun(name) if self._checkpoint.is_local else self._run.queries[name].batches
            statuses[name] = (str(query.status["message"]), batch)
        busy = doing(statuses)
        self._teller.doing(busy or "waiting for records", idle=not busy)

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
        self._queries[name] = self._writers[name].start()

    def _look(self) -> None:
        """Take up what Spark reports. A report comes after the batch is in the sink and in the checkpoint, so what it
        says may be committed."""
        news = False
        for name, query in self._queries.items():
            count = self._run.queries[name]
            for report in reports_after(query, count.last_report):
                news |= count.note(report)
        if news or (self._complaint and time.monotonic() - self._refused_at > AGAIN_S):
            self._commit()
        if news:
            self._teller.batch()

    def _tidy(self) -> None:
        """Put small files together where a sink wants it. Its query stands still meanwhile, since Spark's sink must not
        write its log while somebody else does; a batch that is broken off by that is done again, as after a crash."""
        for name, place in parquet_places(self._pipeline, self._wishes.data).items():
            sink = self._pipeline.outputs[name].sink
            if not isinstance(sink, sinks.Parquet) or sink.compact_after is None:
                continue
            log = read_log(place)
            if log.gathered is None or self._tidied.get(name) == log.gathered:
                continue
            self._tidied[name] = log.gathered
            if small_files(log) < sink.compact_after:
                continue
            query = self._queries[f"sink-{name}"]
            going_on = query.isActive
            with self._teller.during(f"putting small files of {name} together"):
                query.stop()
                done = compact(self._spark, place)
            self._teller.note(done.sentence(name))
            if going_on and not self._stopping.is_set():
                self._look()  # What the query that ends now has reported; the next one starts with no reports.
                self._queries[f"sink-{name}"] = self._writers[f"sink-{name}"].start()

    def _commit(self) -> None:
        positions = self._run.positions()
        fresh = {at: offset for at, offset in positions.items() if self._committed.get(at) != offset}
        if not fresh:
            return
        complaint = self._brokers.commit(self._pipeline.group, fresh)
        if complaint:
            self._refused_at = time.monotonic()
            if not self._complaint:
                self._teller.say(f"offsets of group {self._pipeline.group} are not committed for now: {complaint}.")
        else:
            self._committed |= fresh
            if self._complaint:
                self._teller.say(f"offsets of group {self._pipeline.group} are committed again.")
        self._complaint = complaint

    def _ask_ends(self) -> None:
        """For the summary; a run does not wait for brokers that are away."""
        if self._watch.away:
            return
        streams = [each for read in streams_of(self._pipeline).values() for each in read]
        try:
            topics = {at.topic for at in self._run.positions()} or {at.topic for at in self._run.ends}
            self._run.ends = self._brokers.spans(topics, read_committed=_read_committed(streams))[1]
        except Sentence:
            return  # The lag stays as old as it is.

    def _learned(self) -> bool:
        """Whether a query has stopped for a schema that it did not know: it is asked for, and all begin again with it,
        each with the batch that it was at."""
        from pyspark.errors import PySparkException

        fresh = False
        for query in self._queries.values():
            failure = query.exception() if not query.isActive else None
            wanted = failures.new_schema(failure) if isinstance(failure, PySparkException) else None
            fresh |= wanted is not None and self._registries.learn(*wanted)
        if fresh:
            self._stop_queries()
            self._look()
            self.start()
        return fresh

    def _ask_topics(self, *, failed: bool = False) -> None:
        """Whether they are those that the run began with; where nobody can tell, the queries notice it themselves."""
        if self._watch.away:
            return
        try:
            now = self._topics.ask()
        except Sentence:
            return
        self._topics.look(now, failed=failed)

    def _raise_failure(self) -> None:
        from pyspark.errors import PySparkException

        for name, query in self._queries.items():
            failure = query.exception() if not query.isActive else None
            if isinstance(failure, PySparkException):
                self._ask_topics(failed=True)  # What Spark says of it then is not what is wrong.
                raise failures.sentence(
                    name,
                    failure,
                    checkpoint=self._checkpoint.place,
                    log_file=self._checkpoint.log_file,
                    reset_command=self._checkpoint.reset_command(
                        sink=name.removeprefix("sink-") if name.startswith("sink-") else None
                    ),
                )

    def _stop_queries(self) -> None:
        try:
            for query in self._queries.values():
                if query.isActive:
                    query.stop()
        except Exception as failure:
            if not is_of_ended_jvm(failure):
                raise


def _look_back(running: Run, pipeline: Pipeline, checkpoint: Checkpoint, brokers: Brokers, wishes: Wishes) -> None:
    """Take up where the checkpoint says that each query is, say what was lost since, and see how much is to be done."""
    for name, offsets in checkpoint.committed().items():
        running.queries[name].offsets = dict(offsets)
    streams = [each for read in streams_of(pipeline).values() for each in read]
    behind = {name: each.offsets for name, each in running.queries.items() if each.offsets}
    topics = {at.topic for offsets in behind.values() for at in offsets} | brokers.names(streams)
    begins, ends = brokers.spans(topics, read_committed=_read_committed(streams))
    _see_beginnings(running, pipeline, begins, ends)
    running.ends = ends
    if wishes.available_now:
        running.aim(ends)
    gone = lost_by_query(behind, begins, ends)
    if gone and not wishes.allow_data_loss:
        raise Sentence(
            f"{'; '.join(gone)}: run it with --allow-data-loss to go on with what is there, or start over: "
            f"`{checkpoint.reset_command()}`."
        )
    positions = running.positions()
    if positions and not gone:
        brokers.commit(pipeline.group, positions)  # The run before may have been killed before it could.


def resolved(registries: Registries, name: str, source: Source) -> Source:
    """A source with the schemas that its records were written with, as far as they are known."""
    stream = source if isinstance(source, Topic) else source.stream
    known = replace(stream, schema=registries.resolve(name, stream.schema, stream.topics))
    return known if isinstance(source, Topic) else replace(source, stream=known)


def _topic_watch(
    pipeline: Pipeline, checkpoint: Checkpoint, brokers: Brokers, say: Callable[[str], None]
) -> TopicWatch:
    streams = [each for read in streams_of(pipeline).values() for each in read]
    return TopicWatch(
        checkpoint,
        brokers,
        names={name for each in streams for name in each.topics},
        patterns={each.pattern for each in streams if each.pattern},
        say=say,
    )


def _see_beginnings(
    running: Run, pipeline: Pipeline, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> None:
    """Where queries begin with partitions of which they have finished no batch. One that is new to a checkpoint is read
    from its beginning."""
    for name, streams in streams_of(pipeline).items():
        count = running.queries[name]
        for at, begin in begins.items():
            starting = {each.starting for each in streams if each.reads(at.topic)}
            if count.offsets or starting == {"earliest"}:
                count.begins[at] = begin
            elif starting == {"latest"} and at in ends:
                count.begins[at] = ends[at]


def _read_committed(streams: Iterable[Topic]) -> bool:
    return all(each.read_committed for each in streams)


@contextmanager
def _signals(stopping: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM end a run in order; only the main thread can listen for them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    for each in before:
        signal.signal(each, lambda _number, _frame: stopping.set())
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
