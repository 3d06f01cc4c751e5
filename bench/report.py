"""The numbers of a run as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.cells import Cell, Metrics
from bench.measure import machine, median, today

UNITS = {
    "cpu_s_per_gb": "s/GB",
    "mb_per_s": "MB/s",
    "cpu_us_per_request": "µs each",
    "requests_per_s": "requests/s",
    "cpu_percent": "% of a core",
    "idle_cpu_percent": "% of a core idle",
    "p50_ms": "ms p50",
    "rebalance_ms": "ms a rebalance",
    "p99_ms": "ms p99",
    "rss_mib": "MiB RSS",
    "pss_mib": "MiB PSS",
    "seconds": "s",
    "cpu_seconds": "s of CPU",
}


@dataclass
class Outcome:
    """All repetitions of one cell."""

    cell: Cell
    runs: dict[str, list[Metrics]] = field(default_factory=dict)

    def middle(self, kind: str) -> Metrics | None:
        """The median of each metric, or None where that server was not measured."""
        runs = self.runs.get(kind)
        return {name: median([run[name] for run in runs]) for name in runs[0]} if runs else None

    def verdict(self) -> str:
        """PASS or FAIL against the floor, empty where it cannot be said."""
        odradek = self.middle("odradek")
        if self.cell.floor is None or odradek is None:
            return ""
        holds = self.cell.floor.holds(odradek, self.middle("kafka"))
        return "" if holds is None else "PASS" if holds else "FAIL"

    def ratio(self) -> str:
        """Odradek's number over Kafka's, in the metric the floor is about."""
        odradek, kafka = self.middle("odradek"), self.middle("kafka")
        if self.cell.floor is None or odradek is None or kafka is None:
            return ""
        metric = self.cell.floor.metric
        return f"{odradek[metric] / kafka[metric]:.2f}" if kafka[metric] else ""


def table(outcomes: Sequence[Outcome]) -> str:
    """One row a cell."""
    lines = ["| Measurement | Apache Kafka | Odradek | Ratio | Floor | |", "|---|---|---|---|---|---|"]
    for outcome in outcomes:
        floor = outcome.cell.floor.words() if outcome.cell.floor is not None else ""
        cells = [outcome.cell.name, _words(outcome.middle("kafka")), _words(outcome.middle("odradek"))]
        lines.append(f"| {' | '.join([*cells, outcome.ratio(), floor, outcome.verdict()])} |")
    return "\n".join(lines)


def page(outcomes: Sequence[Outcome], *, command: str, repetitions: int, seconds: float) -> str:
    """The whole of RESULTS.md."""
    verdicts = [outcome.verdict() for outcome in outcomes]
    sections: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        sections.setdefault(_section(outcome.cell.name), []).append(outcome)
    body = "\n\n".join(f"## {title}\n\n{table(rows)}" for title, rows in sections.items())
    return f"""# Results

`{command}` on {today()}, {seconds / 60:.0f} minutes, medians of {repetitions} repetitions a cell and two more where
a consumer reads.

{machine()}. Apache Kafka 4.3.1 with its defaults, `-Xms1G -Xmx1G -XX:+UseG1GC`, warmed up; both brokers stand side by
side and take turns at every repetition. {verdicts.count("PASS")} floors met, {verdicts.count("FAIL")} missed.

{NOTES}

{body}
"""


NOTES = """CPU is the broker process's own, user and system, from the kernel's clock for that process; a GB is 10⁹ bytes
of record values (in `wire` cells: of request or response bytes). MB/s say little here, because the clients share the
machine's cores with the broker. Names: record size, partitions, `default` (16 KiB batches) or `tuned` (256 KiB batches,
linger 10 ms; consumers: 8 MiB a partition), acks, codec where not plain, client where not Java. Java produces with
kafka-producer-perf-test in one warm JVM and consumes with assign() (kafka-consumer-perf-test needs consumer groups);
`rdkafka` is librdkafka through confluent-kafka; `wire` replays frames made once over one socket, five in flight.
`single-record` sends one record a request with acks=1. `latency-1000` is 1,000 records a second with linger 0; the tool
counts whole milliseconds, `latency-1000-wire` does not. `start` runs from the start of the process to the first
acknowledged record of a new topic. `partitions-1000` ends when every partition of the new topic answers ListOffsets."""


def _section(name: str) -> str:
    verb = name.split("-")[0]
    titles: Mapping[str, str] = {
        "produce": "Produce",
        "consume": "Consume",
        "wire": "Wire",
        "rebalance": "Groups",
        "commit": "Groups",
    }
    if verb in ("produce", "consume"):
        return f"{titles[verb]}, {'librdkafka' if name.endswith('rdkafka') else 'Java client'}"
    if name.startswith("idle-members"):
        return "Groups"
    return titles.get(verb, "Requests, start, memory, partitions")


def _words(metrics: Metrics | None) -> str:
    if metrics is None:
        return ""
    return ", ".join(f"{_number(value)} {UNITS[name]}" for name, value in metrics.items())


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
