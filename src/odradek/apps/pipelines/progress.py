"""How far a run is: gathered from Spark's reports, told to people, programs and Prometheus."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from odradek.apps.pipelines.checkpoint import merge_offsets, parse_offsets
from odradek.apps.pipelines.expectations import counted
from odradek.apps.pipelines.sources import Topic
from odradek.apps.terminal.output import plural, size_text
from odradek.apps.terminal.sentence import Sentence
from odradek.client.cluster import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

DEAD_LETTERS = "dead-letters-"
BAR_COLUMNS = 24


class QueryCount:
    """What one query has done in this run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.batches = 0
        self.records_read = 0
        self.rows_written: int | None = None
        """None where the sink does not say: files."""
        self.late_rows = 0
        self.state_rows = 0
        self.state_bytes = 0
        self.batch_ms = 0
        self.spark_ms: dict[str, int] = {}
        """What the batches spent their time with, in Spark's own words."""
        self.offsets: dict[TopicPartition, int] = {}
        self.begins: dict[TopicPartition, int] = {}
        """Where it begins with a partition of which it has finished nothing yet, as far as that is known."""
        self.last_report = ""
        """The moment that Spark's latest report bears, of those that were noted."""
        self.unmet: dict[tuple[str, str], int] = {}
        """By dataset and expectation, how many rows did not meet it."""
        self._last_batch: tuple[str, int] = ("", -1)

    @property
    def is_dead_letters(self) -> bool:
        return self.name.startswith(DEAD_LETTERS)

    def position(self, partition: TopicPartition) -> int | None:
        """Up to where it has read a partition; None where nobody knows."""
        return self.offsets.get(partition, self.begins.get(partition))

    def is_news(self, report: Mapping[str, Any]) -> bool:
        """Whether it reports a batch that was done and not noted before. One without work is no batch, and its number
        is yet to come."""
        run_id, number = _batch(report)
        known = run_id == self._last_batch[0] and number <= self._last_batch[1]
        return not known and "addBatch" in report["durationMs"]

    def note(self, report: Mapping[str, Any]) -> bool:
        """One of Spark's reports; whether it was a batch not noted before."""
        self.last_report = str(report["timestamp"])
        if not self.is_news(report):
            return False
        self._last_batch = _batch(report)
        self.batches += 1
        self.records_read += int(report["numInputRows"])
        self.batch_ms = int(report["durationMs"].get("triggerExecution", 0))
        for kind, ms in report["durationMs"].items():
            self.spark_ms[kind] = self.spark_ms.get(kind, 0) + int(ms)
        written = int((report.get("sink") or {}).get("numOutputRows", -1))
        if written >= 0:
            self.rows_written = (self.rows_written or 0) + written
        operators = report.get("stateOperators") or []
        self.late_rows += sum(int(each.get("numRowsDroppedByWatermark", 0)) for each in operators)
        self.state_rows = sum(int(each.get("numRowsTotal", 0)) for each in operators)
        self.state_bytes = sum(int(each.get("memoryUsedBytes", 0)) for each in operators)
        for expectation, count in counted(report).items():
            self.unmet[expectation] = self.unmet.get(expectation, 0) + count
        offsets: dict[TopicPartition, int] = {}
        for source in report.get("sources") or []:
            held = source.get("endOffset")
            merge_offsets(offsets, parse_offsets(held if isinstance(held, str) else json.dumps(held)))
        self.offsets = (
            self.offsets | offsets
        )  # A new one: threads that draw and serve metrics may be reading the other.
        return True


def reports_after(query: StreamingQuery, last_report: str) -> list[dict[str, Any]]:
    """Spark's reports after the one of that moment, the oldest first.

    PySpark's own `lastProgress` and `recentProgress` fetch every number of every report by a call to the JVM, some
    hundred for a query with state, and of all reports that Spark remembers: whoever looks five times a second keeps
    a tenth of a core busy in Python alone. Here it is two calls while there is nothing new, and then two for each
    new report.
    """
    running = query._jsq
    last = running.lastProgress()
    if last is None or last.timestamp() == last_report:
        return []
    held = running.recentProgress()
    found: list[dict[str, Any]] = []
    for place in reversed(range(len(held))):
        report = json.loads(held[place].json())
        if report["timestamp"] == last_report:
            break
        found.append(report)
    return found[::-1]


def _batch(report: Mapping[str, Any]) -> tuple[str, int]:
    return str(report["runId"]), int(report["batchId"])


class Run:
    """A whole run: all its queries, and how far the topics are ahead of them."""

    def __init__(self, pipeline: str, reads: Mapping[str, Sequence[Topic]]) -> None:
        """`reads`: of every query the streams that it reads."""
        self.pipeline = pipeline
        self.queries = {name: QueryCount(name) for name in reads}
        self._reads = reads
        self.ends: dict[TopicPartition, int] = {}
        self._goals: dict[TopicPartition, int] = {}
        self.goal: int | None = None
        """How many offsets a bounded run has before it; None where that is not known, or where there is no end."""
        self.began = time.monotonic()
        self.seconds = 0.0

    @property
    def sinks(self) -> list[QueryCount]:
        return [each for each in self.queries.values() if not each.is_dead_letters]

    @property
    def dead_letters(self) -> int:
        return sum(each.rows_written or 0 for each in self.queries.values() if each.is_dead_letters)

    @property
    def records_read(self) -> int:
        """Each once, although several sinks read the same."""
        return self._once(lambda sink: sink.records_read)

    @property
    def late_rows(self) -> int:
        """Each once, although several sinks drop the same."""
        return self._once(lambda sink: sink.late_rows)

    @property
    def unmet(self) -> dict[tuple[str, str], int]:
        """By dataset and expectation, how many rows did not meet it, in the sink that has read most of the dataset."""
        found: dict[tuple[str, str], int] = {}
        for each in self.sinks:
            for expectation, count in each.unmet.items():
                found[expectation] = max(count, found.get(expectation, 0))
        return found

    def topics(self) -> set[str]:
        """All that are read, and those that a pattern has found so far."""
        named = {name for streams in self._reads.values() for each in streams for name in each.topics}
        found = {at.topic for each in self.queries.values() for at in each.offsets}
        return named | found | {at.topic for at in self.ends}

    def positions(self) -> dict[TopicPartition, int]:
        """Up to where every query that reads a partition has finished with it, and be it looking for dead letters.

        Partitions of which one of them has finished nothing yet are not among them, and neither are those that no sink
        reads as a stream.
        """
        found = {}
        for partition in sorted({at for each in self.queries.values() for at in each.offsets}):
            readers = [each for each in self.queries.values() if self._is_read(each, partition.topic)]
            if all(partition in each.offsets for each in readers) and not all(e.is_dead_letters for e in readers):
                found[partition] = min(each.offsets[partition] for each in readers)
        return found

    def reached(self) -> dict[TopicPartition, int]:
        """As `positions`, but before a first batch a query is where it begins."""
        found = {}
        for partition in sorted(self.ends.keys() | self._goals.keys()):
            readers = [each for each in self.queries.values() if self._is_read(each, partition.topic)]
            held = [at for at in (each.position(partition) for each in readers) if at is not None]
            if len(held) == len(readers) and not all(each.is_dead_letters for each in readers):
                found[partition] = min(held)
        return found

    def lag(self) -> dict[TopicPartition, int]:
        reached = self.reached()
        return {at: max(end - reached[at], 0) for at, end in sorted(self.ends.items()) if at in reached}

    def aim(self, ends: Mapping[TopicPartition, int]) -> None:
        """This run ends where its topics end now."""
        self.ends = dict(ends)
        self._goals = {at: end for at, end in ends.items() if any(self._is_read(each, at.topic) for each in self.sinks)}
        if self._goals.keys() <= self.reached().keys():
            self.goal = self.left()

    def left(self) -> int:
        """How many offsets there are still to read up to where a bounded run ends."""
        reached = self.reached()
        return sum(max(end - reached.get(at, 0), 0) for at, end in self._goals.items())

    def _once(self, count: Callable[[QueryCount], int]) -> int:
        """A sum over sinks in which those that read the same count as one: the one that has counted most."""
        groups: list[tuple[set[str], int]] = []
        for sink in self.sinks:
            streams, most = {each.text for each in self._reads[sink.name]}, count(sink)
            for others in [group for group in groups if group[0] & streams]:
                groups.remove(others)
                streams, most = streams | others[0], max(most, others[1])
            groups.append((streams, most))
        return sum(most for _, most in groups)

    def _is_read(self, query: QueryCount, topic: str) -> bool:
        return any(stream.reads(topic) for stream in self._reads[query.name])

    def data(self, kind: str) -> dict[str, Any]:
        """Everything, for programs."""
        seconds = self.seconds or time.monotonic() - self.began
        return {
            "event": kind,
            "pipeline": self.pipeline,
            "seconds": round(seconds, 3),
            "records_read": self.records_read,
            "records_per_second": round(self.records_read / seconds, 1) if seconds else 0.0,
            "dead_letters": self.dead_letters,
            "late_rows": self.late_rows,
            "expectations": nested(self.unmet),
            "lag": {str(partition): behind for partition, behind in self.lag().items()},
            "queries": {
                each.name: {
                    "batches": each.batches,
                    "records_read": each.records_read,
                    "rows_written": each.rows_written,
                    "batch_ms": each.batch_ms,
                    "late_rows": each.late_rows,
                    "state_rows": each.state_rows,
                    "state_bytes": each.state_bytes,
                }
                for each in self.queries.values()
            },
        }

    def line(self, doing: str = "") -> str:
        """On one line, for people; with what it does at the moment, or waits for."""
        seconds = time.monotonic() - self.began
        lag = self.lag()
        came = sum(lag.values()) - self.left() if self.goal is not None else 0
        behind = ", ".join(f"{partition} {count:,}" for partition, count in lag.items() if count)
        parts = [
            f"{plural(self.records_read, 'record')}, {self.records_read / max(seconds, 0.001):,.0f}/s",
            # A first run that does not begin at the earliest offset knows where it is after its first batch.
            f"lag {sum(lag.values()):,}"
            + (f" ({behind})" if behind and len(lag) <= 8 else "")
            + (f", {came:,} of it came after the run began" if came > 0 else "")
            if lag
            else "lag not known",
            f"batch {max((each.batch_ms for each in self.sinks), default=0) / 1000:.1f} s",
        ]
        rows = sum(each.state_rows for each in self.sinks)
        if rows:
            parts.append(f"state {rows:,} rows, {size_text(sum(each.state_bytes for each in self.sinks))}")
        if self.dead_letters:
            parts.append(plural(self.dead_letters, "dead letter"))
        if self.late_rows:
            parts.append(f"{plural(self.late_rows, 'row')} too late")
        parts += [f"{plural(n, 'row')} of {dataset} not {name}" for (dataset, name), n in self.unmet.items() if n]
        if doing:
            parts.insert(0, doing)
        if self.goal:
            left = self.left()
            full = int((self.goal - left) / self.goal * BAR_COLUMNS)
            parts.insert(0, f"[{'#' * full}{'-' * (BAR_COLUMNS - full)}] {_percent(self.goal - left, self.goal):3}%")
        return f"{self.pipeline}: {'; '.join(parts)}"

    def summary(self, dead_letter_topic: str) -> list[str]:
        """What a run that has ended did."""
        lines = [f"{self.pipeline}: {plural(self.records_read, 'record')} in {self.seconds:.1f} s"]
        for each in self.sinks:
            written = "" if each.rows_written is None else f", {plural(each.rows_written, 'row')} written"
            late = f", {plural(each.late_rows, 'row')} dropped because they came too late" if each.late_rows else ""
            lines.append(
                f"  {each.name}: {plural(each.records_read, 'record')} read in "
                f"{each.batches:,} {'batch' if each.batches == 1 else 'batches'}{written}{late}"
            )
        if self.dead_letters:
            lines.append(f"  dead letters: {self.dead_letters:,} to {dead_letter_topic}")
        for (dataset, name), count in self.unmet.items():
            lines.append(f"  expectation {name} of {dataset}: not met by {plural(count, 'row')}")
        left = sum(self.lag().values())
        if left:
            came = ", which came after the run began" if self.goal is not None and not self.left() else ""
            lines.append(f"  left to read: {plural(left, 'record')}{came}")
        return lines


def nested(unmet: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    """`{"large": {"positive": 2}}`."""
    found: dict[str, dict[str, int]] = {}
    for (dataset, name), count in unmet.items():
        found.setdefault(dataset, {})[name] = count
    return found


def _percent(done: int, whole: int) -> int:
    """Rounded down: a hundred is when nothing is left."""
    return 100 * done // whole


def exposition(run: Run) -> str:
    """The same for Prometheus."""
    data = run.data("metrics")
    lines: list[str] = []

    def family(name: str, kind: str, help_line: str, samples: Iterable[tuple[str, float]]) -> None:
        lines.extend((f"# HELP odradek_pipeline_{name} {help_line}", f"# TYPE odradek_pipeline_{name} {kind}"))
        for labels, sample in samples:
            lines.append(f'odradek_pipeline_{name}{{pipeline="{run.pipeline}"{labels}}} {sample:g}')

    def per_query(name: str) -> list[tuple[str, float]]:
        told = [(query, counts[name]) for query, counts in data["queries"].items()]
        return [(f',query="{query}"', count) for query, count in told if count is not None]

    family("records_read_total", "counter", "Records read by each query.", per_query("records_read"))
    family("rows_written_total", "counter", "Rows written, where the sink says so.", per_query("rows_written"))
    family("batches_total", "counter", "Micro-batches finished.", per_query("batches"))
    family("late_rows_total", "counter", "Rows dropped because they came too late.", per_query("late_rows"))
    family(
        "batch_seconds",
        "gauge",
        "How long the last micro-batch took.",
        [(labels, ms / 1000) for labels, ms in per_query("batch_ms")],
    )
    family("state_rows", "gauge", "Rows of state.", per_query("state_rows"))
    family("state_bytes", "gauge", "Memory that state takes.", per_query("state_bytes"))
    family("dead_letters_total", "counter", "Records that did not fit.", [("", run.dead_letters)])
    unmet = [(f',dataset="{dataset}",expectation="{name}"', count) for (dataset, name), count in run.unmet.items()]
    family("expectation_failures_total", "counter", "Rows that did not meet what is expected.", unmet)
    family(
        "lag_records",
        "gauge",
        "Records not read yet.",
        [(f',topic="{at.topic}",partition="{at.partition}"', behind) for at, behind in run.lag().items()],
    )
    return "\n".join(lines) + "\n"


class MetricsServer:
    """Serves `exposition` on loopback; a context manager."""

    def __init__(self, run: Run, port: int) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = exposition(run).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nobody wants a line for every scrape."""

        try:
            self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except OSError as failure:
            raise Sentence(
                f"cannot serve metrics on port {port} ({failure.strerror}): choose another, or 0 for any that is free."
            ) from failure
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> MetricsServer:
        threading.Thread(target=self._server.serve_forever, name="pipeline-metrics", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
