"""The numbers of a run as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import cluster_cells, scale_out
from bench.cells import Cell, Metrics
from bench.cluster_cells import ClusterCell
from bench.measure import machine, median, today

UNITS = {
    "cpu_s_per_gb": "s/GB",
    "mb_per_s": "MB/s",
    "cpu_us_per_request": "µs each",
    "requests_per_s": "requests/s",
    "records_per_s": "records/s",
    "cpu_percent": "% of a core",
    "idle_cpu_percent": "% of a core idle",
    "p50_ms": "ms p50",
    "rebalance_ms": "ms a rebalance",
    "cpu_ms": "ms of CPU",
    "p99_ms": "ms p99",
    "rss_mib": "MiB RSS",
    "pss_mib": "MiB PSS",
    "seconds": "s",
    "cpu_seconds": "s of CPU",
    "detection_s": "s to notice",
    "election_s": "s to elect",
    "load_s": "s to answer",
    "all_live_s": "s until all partitions answer",
    "kib_per_partition": "KiB a partition",
    "kib_per_hosted": "KiB a partition hosted",
    "cpu_s_per_gb_1": "s/GB at 1 broker",
    "cpu_s_per_gb_2": "s/GB at 2",
    "cpu_s_per_gb_3": "s/GB at 3",
    "spread": "times between the dearest and the cheapest",
    "mb_per_s_held_1": "MB/s of 1 held to a share of a core",
    "mb_per_s_held_2": "MB/s of 2",
    "mb_per_s_held_3": "MB/s of 3",
}


@dataclass
class Outcome:
    """All repetitions of one cell."""

    cell: Cell | ClusterCell
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
        """Odradek's number over Kafka's, in the metric the floor is about, or in the one it says."""
        odradek, kafka = self.middle("odradek"), self.middle("kafka")
        if self.cell.floor is None or odradek is None or kafka is None:
            return ""
        metric = self.cell.floor.compared or self.cell.floor.metric
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
side and take turns at every repetition. Files of deleted topics go after a second on both.
{verdicts.count("PASS")} floors met, {verdicts.count("FAIL")} missed.

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
acknowledged record of a new topic. `partitions-1000` ends when every partition of the new topic answers ListOffsets.
`transactions` commits every 100 or 10 ms; `transaction-one-record` is one record and a commit, again and again;
`transaction-empty` adds a partition and commits, over a raw socket and with 20 ids in turn (a request there is one
transaction); `consume-committed` reads with read_committed what was committed every 100 ms."""


CLUSTER_HEADING = "# Clusters"
PIPELINE_HEADING = "# Pipelines"
SIMULATION_HEADING = "# The simulation"
PARTS = (CLUSTER_HEADING, PIPELINE_HEADING, SIMULATION_HEADING)
"""Each is written by a program of its own, and left alone by the others."""


def cluster_part(outcomes: Sequence[Outcome], *, command: str, repetitions: int, seconds: float) -> str:
    """The part of RESULTS.md that is about clusters."""
    verdicts = [outcome.verdict() for outcome in outcomes]
    sections: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        sections.setdefault(_cluster_section(outcome.cell.name), []).append(outcome)
    body = "\n\n".join(f"## {title}\n\n{table(rows)}" for title, rows in sections.items())
    return f"""{CLUSTER_HEADING}

`{command}` on {today()}, {seconds / 60:.0f} minutes, medians of {repetitions} repetitions a cell, one where it says so.

{machine()}. Three nodes of each kind where nothing else is said,
`process.roles=broker,controller`, their defaults, but files of deleted topics go after a second; Apache Kafka 4.3.1
with `-Xms512M -Xmx1G -XX:+UseG1GC` a node.
{verdicts.count("PASS")} floors met, {verdicts.count("FAIL")} missed.

{CLUSTER_NOTES}

{body}
"""


def with_other_parts_of(file: Path, written: str) -> str:
    """The page as it was written, with the parts that the file has already and other programs write."""
    kept = _parts(file.read_text() if file.exists() else "")
    return "\n".join([written, *(part for heading, part in kept.items() if heading)])


def with_new_part(file: Path, heading: str, part: str) -> str:
    """The file's page with another part of that heading."""
    kept = _parts(file.read_text() if file.exists() else "# Results\n")
    ordered = {each: kept[each] for each in ("", *PARTS) if each in kept and each != heading}
    ordered[heading] = part
    return "\n\n".join(ordered[each].strip() for each in ("", *PARTS) if each in ordered) + "\n"


def _parts(text: str) -> dict[str, str]:
    """By heading; what comes before the first of them has none."""
    found = {"": ""}
    heading = ""
    for line in text.splitlines(keepends=True):
        if line.strip() in PARTS:
            heading = line.strip()
            found[heading] = ""
        found[heading] += line
    return found


CLUSTER_NOTES = f"""`controller-kill` and `controller-hold` are kill -9 and SIGSTOP of the active controller: seconds
until one of the two other nodes has answered an IncrementalAlterConfigs, both being asked every 50 ms. What they went
to is read from the voters' `quorum-state` files: to notice (a file changes), to elect (a file names another leader),
to answer. Partitions have one replica there, spread over all nodes. `memory` is the growth of the largest node's
resident memory, divided by the partitions of the cluster and by those it hosts; `idle-cpu` is the busiest node's.
`node-start` runs from the start of a process that was stopped cleanly until its own Metadata names all brokers, and
until every partition of the cluster answers ListOffsets. `replicated` is acks=all, three replicas,
min.insync.replicas=2, the CPU of all nodes: medians of {cluster_cells.REPLICATED_TURNS} turns of
{cluster_cells.REPLICATED_MEGABYTES} MB (times --scale) each, while the nodes of the other kind stand still; before each
turn memory for its files is taken from the host and freed again. `young` rows have new nodes each, and Kafka has
{cluster_cells.YOUNG_ROUNDS} turns to warm up; `warm` rows share their nodes, and Kafka has {cluster_cells.WARM_ROUNDS}
more turns before each of them. `gap` is the longest time between two acknowledgements in a stream of acks=all records
when the leader is lost; without `rdkafka` the client tries again at once, so that only the cluster's own part is left.
`leaders-2000` ends when every one of 2,000 partitions of three replicas answers at a survivor. `scale-out` sends the
same frames (16 KB batches, one replica) to clusters of 1, 2 and 3 brokers, which stand side by side and take turns, in
changing order, while the others stand still: medians of {scale_out.ROUNDS} rounds of {scale_out.TURN_S:g} seconds
(times --scale) each. A broker may use {scale_out.SHARE_OF_A_CORE * 100:g} % of a core, so
that the clients always keep it busy. How far the dearest GB is from the cheapest is told from costs relative to the
mean of their round, because the machine is not equally fast in all of them. Sessions of brokers do not expire there,
and files of deleted topics go at once, so that every turn finds the same memory free."""


def _cluster_section(name: str) -> str:
    if name.startswith(("replicated", "scale-out")):
        return "What replication and more brokers cost"
    if name.startswith(("gap", "leaders")):
        return "A leader is lost"
    return "Metadata: controllers lost, many partitions"


def _section(name: str) -> str:
    verb = name.split("-")[0]
    titles: Mapping[str, str] = {
        "produce": "Produce",
        "consume": "Consume",
        "wire": "Wire",
        "rebalance": "Groups",
        "commit": "Groups",
        "transaction": "Transactions",
        "transactions": "Transactions",
    }
    if name.startswith("consume-committed"):
        return "Transactions"
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
