"""Runs a pipeline: starts its queries, commits offsets behind them, tells how it goes, and ends them together."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from odradek.apps.pipelines import failures, sinks
from odradek.apps.pipelines.agreement import check_lakes, owned, parquet_places
from odradek.apps.pipelines.brokers import Brokers
from odradek.apps.pipelines.checkpoint import Checkpoint
from odradek.apps.pipelines.compaction import compact, read_log, small_files
from odradek.apps.pipelines.launch import Queries, resolved
from odradek.apps.pipelines.pipeline import Pipeline
from odradek.apps.pipelines.progress import MetricsServer, Run, reports_after
from odradek.apps.pipelines.queries import read_committed, refusing, streams_of
from odradek.apps.pipelines.recreated import TopicWatch
from odradek.apps.pipelines.registry import Registries
from odradek.apps.pipelines.resume import look_back, topic_watch
from odradek.apps.pipelines.session import is_of_ended_jvm, open_session
from odradek.apps.pipelines.teller import Teller, doing
from odradek.apps.pipelines.timings import Timings
from odradek.apps.pipelines.watch import BrokerWatch
from odradek.apps.pipelines.wishes import Wishes
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import Session
from odradek.client.cluster import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S = 0.2
"""How often a run looks what its queries have done."""

STATUS_S = 1.0
"""How often a run asks Spark what its queries do at the moment."""

AGAIN_S = 2.0
"""After how long offsets that could not be committed are committed again."""

BRIEF_RECORDS = 100_000
"""Up to so many records a run with an end is over before a JVM made for long work would pay."""


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
        topics = topic_watch(pipeline, checkpoint, brokers, teller.note)
        with teller.during("comparing the checkpoint with the topics"):
            topics.begin(wishes.topic_recreated)
            look_back(running, pipeline, checkpoint, brokers, wishes)
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
        watch = BrokerWatch(
            session,
            running.topics,
            teller.say,
            topic_ids=topics.ask_of,
            read_committed=read_committed(pipeline),
        )
        open_things.enter_context(watch.watching())
        queries = Queries(pipeline, checkpoint, brokers, wishes, running, spark, topics, registries)
        with teller.during("starting the queries"):
            queries.start()
        teller.follow(running)
        with teller.timings.phase("batches"):
            _Shift(pipeline, checkpoint, brokers, wishes, running, queries, teller, watch, topics, registries).work()
    teller.end(pipeline.dead_letters, with_timings=wishes.timings)
    return running


def is_brief(running: Run) -> bool:
    """Whether a run will be over soon."""
    return running.goal is not None and running.goal <= BRIEF_RECORDS


class _Shift:
    """One run, from when its queries are started until all have ended."""

    def __init__(
        self,
        pipeline: Pipeline,
        checkpoint: Checkpoint,
        brokers: Brokers,
        wishes: Wishes,
        running: Run,
        queries: Queries,
        teller: Teller,
        watch: BrokerWatch,
        topics: TopicWatch,
        registries: Registries,
    ) -> None:
        self._pipeline = pipeline
        self._checkpoint = checkpoint
        self._brokers = brokers
        self._wishes = wishes
        self._run = running
        self._teller = teller
        self._watch = watch
        self._topics = topics
        self._registries = registries
        self._queries = queries
        self._tidied: dict[str, int | None] = {}
        self._stopping = threading.Event()
        self._committed: dict[TopicPartition, int] = {}
        self._complaint = ""
        self._refused_at = 0.0

    def work(self) -> None:
        """Until the queries have ended by themselves, one has failed, or somebody wants them to stop."""
        asked_at = 0.0
        try:
            with _signals(self._stopping):
                while not self._stopping.is_set():
                    active = self._queries.active()
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
                self._queries.stop()
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
            self._queries.stop()
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

    def _look(self) -> None:
        """Take up what Spark reports. A report comes after the batch is in the sink and in the checkpoint, so what it
        says may be committed."""
        news = False
        for name, query in self._queries.started.items():
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
            query = self._queries.started[f"sink-{name}"]
            going_on = query.isActive
            with self._teller.during(f"putting small files of {name} together"):
                query.stop()
                done = compact(self._queries.spark, place)
            self._teller.note(done.sentence(name))
            if going_on and not self._stopping.is_set():
                self._look()  # What the query that ends now has reported; the next one starts with no reports.
                self._queries.go_on(f"sink-{name}")

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
        try:
            topics = {at.topic for at in self._run.positions()} or {at.topic for at in self._run.ends}
            self._run.ends = self._brokers.spans(topics, read_committed=read_committed(self._pipeline))[1]
        except Sentence:
            return  # The lag stays as old as it is.

    def _learned(self) -> bool:
        """Whether a query has stopped for a schema that it did not know: it is asked for, and all begin again with it,
        each with the batch that it was at."""
        fresh = False
        for _, failure in self._queries.failed():
            wanted = failures.new_schema(failure)
            fresh |= wanted is not None and self._registries.learn(*wanted)
        if fresh:
            self._queries.stop()
            self._look()
            self._queries.start()
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
        for name, failure in self._queries.failed():
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
