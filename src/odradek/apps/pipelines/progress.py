"""How far a run is: gathered from Spark's reports, told to people, programs and Prometheus."""

from __future__ import annotations

import http.server
import json
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
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
        self.offsets: dict[TopicPartition, int] = {}
        self.last_report = ""
        """The moment that Spark's latest report bears, of those that were noted."""
        self.unmet: dict[tuple[str, str], int] = {}
        """By dataset and expectation, how many rows did not meet it."""
        self._last_batch: tuple[str, int] = ("", -1)

    @property
    def is_dead_letters(self) -> bool:
        return self.name.startswith(DEAD_LETTERS)

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
        self.offsets |= offsets
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
        self.goal = 0
        """How many records were there when a bounded run began; 0 for a run without an end."""
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
        """By the sink that has read most: several read the same records."""
        return max((each.records_read for each in self.sinks), default=0)

    @property
    def late_rows(self) -> int:
        return sum(each.late_rows for each in self.sinks)

    @property
    def unmet(self) -> dict[tuple[str, str], int]:
        """By dataset and expectation, how many rows did not meet it, in the sink that has read most of the dataset."""
        found: dict[tuple[str, str], int] = {}
        for each in self.sinks:
            for expectation, count in each.unmet.items():
                found[expectation] = max(count, found.get(expectation, 0))
        return found

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

    def lag(self) -> dict[TopicPartition, int]:
        positions = self.positions()
        return {at: max(end - positions[at], 0) for at, end in sorted(self.ends.items()) if at in positions}

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

    def line(self) -> str:
        """On one line, for people."""
        seconds = time.monotonic() - self.began
        lag = self.lag()
        behind = ", ".join(f"{partition} {count:,}" for partition, count in lag.items() if count)
        parts = [
            f"{plural(self.records_read, 'record')}, {self.records_read / max(seconds, 0.001):,.0f}/s",
            # Before a first batch nobody knows how far the sinks are.
            f"lag {sum(lag.values()):,}" + (f" ({behind})" if behind and len(lag) <= 8 else "")
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
        if self.goal:
            share = min(self.records_read / self.goal, 1.0)
            full = int(share * BAR_COLUMNS)
            parts.insert(0, f"[{'#' * full}{'-' * (BAR_COLUMNS - full)}] {share:4.0%}")
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
            lines.append(f"  left to read: {plural(left, 'record')}")
        return lines


def nested(unmet: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    """`{"large": {"positive": 2}}`."""
    found: dict[str, dict[str, int]] = {}
    for (dataset, name), count in unmet.items():
        found.setdefault(dataset, {})[name] = count
    return found


class Teller:
    """Says how a run goes: a line that is drawn again where somebody watches, JSON lines where a program reads."""

    def __init__(self, run: Run, form: str, *, quiet: bool = False) -> None:
        self._run = run
        self._form = form
        self._quiet = quiet
        self._watched = form == "table" and not quiet and sys.stderr.isatty()
        self._width = 0

    def batch(self) -> None:
        """Something was done."""
        if self._form == "json" and not self._quiet:
            print(json.dumps(self._run.data("progress")), flush=True)
        elif self._watched:
            self._draw(self._run.line())
        elif not self._quiet:
            print(self._run.line(), file=sys.stderr, flush=True)

    def end(self, dead_letter_topic: str) -> None:
        if self._watched and self._width:
            self._draw("")
            print("\r", end="", file=sys.stderr)
        if self._quiet:
            return
        if self._form == "json":
            print(json.dumps(self._run.data("summary")), flush=True)
        else:
            print("\n".join(self._run.summary(dead_letter_topic)), flush=True)

    def _draw(self, text: str) -> None:
        print(f"\r{text:<{self._width}}", end="", file=sys.stderr, flush=True)
        self._width = len(text)


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
            raise Sentence(f"cannot serve metrics on port {port} ({failure.strerror}): choose another.") from failure
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> MetricsServer:
        threading.Thread(target=self._server.serve_forever, name="pipeline-metrics", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
