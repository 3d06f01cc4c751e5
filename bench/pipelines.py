"""Measure pipelines over Odradek beside the same over Apache Kafka.

python -m bench.pipelines                     everything, into the part of bench/RESULTS.md on pipelines
python -m bench.pipelines --scale 0.1         less of it, written nowhere

Both servers run on the same machine and hold the same records; the Spark session is the same for both, one with one
core and one with two. Of every pipeline both have a turn right after each other while the other server stands still
(SIGSTOP): an idle JVM costs a fiftieth of a core, which is not the business of whose turn it is. Whoever was first is
second the next time, and the two turns make a pair: Spark's JVM gets faster from turn to turn for a long time, and who
is second would always gain by it. The ratio is the median of those of the pairs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measure import machine, today
from bench.report import PIPELINE_HEADING, with_new_part
from bench.servers import OdradekServer, Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULTS = Path(__file__).with_name("RESULTS.md")
PARTITIONS = 4
RECORD_BYTES = 100
WARM_UPS = 4
"""Turns of each server that are not counted: Spark's compiler is busy with the first."""
PAIRS = 4
"""Of turns that are: in one of each pair Kafka is first, in the other Odradek."""
BOTH_SERVERS = {"broker.session.timeout.ms": "3600000"}
"""Whoever stood still for a turn has not been away, so that nobody spends the next one with coming back."""
KEPT_CONSUMERS = {
    "spark.kafka.consumer.cache.capacity": "4096",
    "spark.kafka.consumer.cache.timeout": "1h",
    "spark.kafka.consumer.fetchedData.cache.timeout": "20s",
    "spark.kafka.producer.cache.timeout": "1h",
}
"""No turn begins with the closing of consumers of turns before, least of all of those whose server stands still."""
RECORDS = {"bench-records": 800_000, "bench-orders": 400_000}
"""So many that a run takes seconds, of which those that do not depend on the records are few."""
RECORDS_A_BATCH = 1_000
TEST_FLOOR_S = 3.0
LATENCY_RECORDS = 60
CUSTOMERS = 1_000

COPY = """
from pyspark.sql import functions as F
from odradek.pipelines import Pipeline, schemas, sinks, sources

pipeline = Pipeline("{name}")
pipeline.source("records", sources.topic("bench-records", key=schemas.raw()))

@pipeline.dataset
def copy(records):
    return records.select("value", "_partition", "_offset") if {files} else records.select("value", "_key")

pipeline.sink("sink", copy, {sink})
"""

JOIN = """
from pyspark.sql import functions as F
from odradek.pipelines import Pipeline, schemas, sinks, sources

pipeline = Pipeline("windowed-join")
order = schemas.json("customer string, amount bigint, at timestamp")
pipeline.source("orders", sources.topic("bench-orders", value=order))
pipeline.source("customers", sources.table("bench-customers", value=schemas.json("country string")))

@pipeline.dataset
def revenue(orders, customers):
    known = customers.select(F.col("_key").alias("customer"), "country")
    joined = orders.withWatermark("at", "1 minute").join(known, "customer", "left")
    return joined.groupBy(F.window("at", "1 minute"), "country").agg(F.sum("amount").alias("amount"))

pipeline.sink("sink", revenue, sinks.topic("revenue", value=schemas.json("amount bigint")))
"""

PIPELINES = {
    "topic-to-parquet": COPY.format(name="topic-to-parquet", files=True, sink='sinks.parquet("lake")'),
    "topic-to-topic": COPY.format(
        name="topic-to-topic", files=False, sink='sinks.topic("bench-copy", value=schemas.raw(), partitions=4)'
    ),
    "windowed-join": JOIN,
}
LATENCY = COPY.format(
    name="latency", files=False, sink='sinks.topic("latency-out", value=schemas.raw(), partitions=1)'
).replace("bench-records", "latency-in")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="times the records of each measurement")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="of turns of each server; each is first in one of two")
    parser.add_argument("--server", choices=("both", "odradek", "kafka"), default="both")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(_measure(json.loads(options.measure))))
        return 0
    began = time.monotonic()
    with ExitStack() as stack:
        kinds = ["kafka", "odradek"] if options.server == "both" else [options.server]
        servers = [stack.enter_context(_server(kind)) for kind in kinds]
        counts = {topic: round(count * options.scale) for topic, count in RECORDS.items()}
        for server in servers:
            load(server.bootstrap, counts)
            _say(f"{server.kind}: {counts} written")
        found = {}
        for cores in (1, 2):
            task = {
                "cores": cores,
                "pairs": options.pairs,
                "servers": {server.kind: server.bootstrap for server in servers},
                "pids": {server.kind: server.pid for server in servers},
            }
            command = [sys.executable, "-m", "bench.pipelines", "--measure", json.dumps(task)]
            try:
                ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            finally:
                for server in servers:
                    os.kill(server.pid, signal.SIGCONT)
            found[cores] = json.loads(ended.stdout.splitlines()[-1])
    part = report(found, counts=counts, pairs=options.pairs, seconds=time.monotonic() - began)
    print(part)
    if options.server == "both" and options.scale == 1.0:
        RESULTS.write_text(with_new_part(RESULTS, PIPELINE_HEADING, part))
    return 0


def load(bootstrap: str, counts: dict[str, int]) -> None:
    """What the pipelines read, by librdkafka, in the same batches wherever it is written.

    Batches that leave when they are full are as large on a slow server as on a fast one; if they left when the server
    has time for them, Spark would find fewer and larger ones on the slower.
    """
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    topics = {"bench-records": PARTITIONS, "bench-orders": PARTITIONS, "bench-customers": 1, "latency-in": 1}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for each in admin.create_topics([NewTopic(*each, 1) for each in topics.items()]).values():
        each.result()
    full = {"batch.num.messages": RECORDS_A_BATCH, "linger.ms": 60_000, "queue.buffering.max.messages": 2_000_000}
    producer = Producer({"bootstrap.servers": bootstrap, **full})
    for number in range(CUSTOMERS):
        producer.produce("bench-customers", json.dumps({"country": f"C{number % 50}"}), key=f"c{number}")
    for number in range(counts["bench-records"]):
        producer.produce("bench-records", b"%0*d" % (RECORD_BYTES, number), partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    for number in range(counts["bench-orders"]):
        at = f"2026-11-15T12:{number // 1000 % 60:02d}:{number % 60:02d}Z"
        order = f'{{"customer": "c{number % CUSTOMERS}", "amount": {number % 997}, "at": "{at}", "note": "{"x" * 20}"}}'
        producer.produce("bench-orders", order, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def _measure(task: dict[str, object]) -> dict[str, object]:
    """In a process of its own, because a session's cores are settled at its start."""
    from odradek.apps.pipelines.session import open_session, stop_session

    cores, servers, pairs, pids = task["cores"], task["servers"], task["pairs"], task["pids"]
    assert isinstance(servers, dict)
    assert isinstance(pairs, int)
    assert isinstance(pids, dict)
    directory = Path(tempfile.mkdtemp(prefix="bench-pipelines-"))
    began = time.monotonic()
    spark = open_session("bench", master=f"local[{cores}]", conf=KEPT_CONSUMERS, log_file=directory / "spark.log")
    found: dict[str, object] = {"session_s": time.monotonic() - began}
    try:
        rates: dict[str, dict[str, list[float]]] = {}
        for number in range(WARM_UPS + 2 * pairs):
            for name, text in PIPELINES.items():
                for kind in servers if number % 2 else reversed(list(servers)):
                    with _alone(kind, pids):
                        rate = _rate(spark, name, text, servers[kind], directory / f"{kind}-{name}-{number}")
                    _say(f"local[{cores}] {number} {kind} {name}: {rate:,.0f} records/s")
                    if number >= WARM_UPS:
                        rates.setdefault(name, {}).setdefault(kind, []).append(rate)
                    shutil.rmtree(directory / f"{kind}-{name}-{number}")
        found["rates"] = rates
        if cores == 2:
            latencies = {}
            for kind, at in servers.items():
                with _alone(kind, pids):
                    latencies[kind] = _latency(spark, at, directory / f"{kind}-latency")
            found["latency_ms"] = latencies
            if "odradek" in servers:
                found["test_s"] = _warm_test(spark, directory / "test")
    finally:
        stop_session(spark)
        shutil.rmtree(directory, ignore_errors=True)
    return found


@contextmanager
def _alone(kind: str, pids: dict[str, int]) -> Iterator[None]:
    """The other servers stand still meanwhile."""
    others = [pid for each, pid in pids.items() if each != kind]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)


def _rate(spark: SparkSession, name: str, text: str, bootstrap: str, directory: Path) -> float:
    from odradek.apps.pipelines.runner import run
    from odradek.apps.pipelines.wishes import Wishes

    ran = run(
        _pipeline(text, directory, name),
        _session(bootstrap),
        _wishes(Wishes, directory, available_now=True),
        spark=spark,
    )
    return ran.records_read / ran.seconds


def _latency(spark: SparkSession, bootstrap: str, directory: Path) -> list[float]:
    """Milliseconds from a record's produce call until a consumer has what the pipeline made of it."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    from odradek.apps.pipelines.runner import run
    from odradek.apps.pipelines.wishes import Wishes

    taken: list[float] = []

    def probe() -> None:
        try:
            consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "latency", "enable.auto.commit": False})
            consumer.assign([TopicPartition("latency-out", 0, 0)])
            producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
            for number in range(LATENCY_RECORDS + 5):
                sent = time.monotonic()
                producer.produce("latency-in", str(number))
                producer.flush(30)
                deadline = sent + 60
                while time.monotonic() < deadline:
                    message = consumer.poll(0.5)
                    if message is not None and not message.error() and message.value() == str(number).encode():
                        break
                if number >= 5:
                    taken.append((time.monotonic() - sent) * 1000)
            consumer.close()
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=probe, daemon=True).start()
    run(_pipeline(LATENCY, directory, "latency"), _session(bootstrap), _wishes(Wishes, directory), spark=spark)
    return taken


def _warm_test(spark: SparkSession, directory: Path) -> float:
    """What a user's test takes once the session is warm: a node, a pipeline, records in, rows out."""
    from odradek.apps.pipelines.trial import Trial
    from odradek.testing import running_node

    times = []
    for number in range(4):
        began = time.monotonic()
        place = directory / str(number)
        with running_node() as node:
            trial = Trial(
                _pipeline(PIPELINES["topic-to-parquet"], place, "topic-to-parquet"),
                spark,
                node.bootstrap_servers,
                place,
            )
            trial.send("bench-records", "one", "two")
            trial.run()
            assert len(trial.rows("sink")) == 2
        times.append(time.monotonic() - began)
    return statistics.median(times[1:])


def report(found: dict[int, dict[str, object]], *, counts: dict[str, int], pairs: int, seconds: float) -> str:
    """The part of RESULTS.md that is about pipelines."""
    lines = [
        PIPELINE_HEADING,
        "",
        f"`python -m bench.pipelines --pairs {pairs}` on {today()}, {seconds / 60:.0f} minutes. {machine()},",
        "shared by Spark, the server whose turn it was, and whatever else ran.",
        f"{counts['bench-records']:,} records of {RECORD_BYTES} B to Parquet and to a topic;",
        f"{counts['bench-orders']:,} orders (JSON) joined with {CUSTOMERS:,} customers and",
        f"summed up by minute; {PARTITIONS} partitions. Medians of {2 * pairs} turns of each server",
        f"after {WARM_UPS} to warm up; both take every turn right after each other, in changing order, while the other",
        "one stands still. Two turns, of which each server was first in one, make a pair (the geometric mean of their",
        f"ratios); the ratio is the median of {pairs} pairs, with the lowest and the highest.",
        "",
        "| Pipeline | Spark | Apache Kafka | Odradek | Ratio | Floor | |",
        "|---|---|---|---|---|---|---|",
    ]
    for cores, each in found.items():
        rates = each["rates"]
        assert isinstance(rates, dict)
        for name, by_server in rates.items():
            lines.append(_row(name, cores, by_server))
    lines += ["", *_scaling(found), "", *_others(found[2])]
    return "\n".join(lines) + "\n"


def _row(name: str, cores: int, by_server: dict[str, list[float]]) -> str:
    medians = {kind: statistics.median(values) for kind, values in by_server.items()}
    cells = [f"{medians[kind] / 1000:,.1f} k/s" if kind in medians else "-" for kind in ("kafka", "odradek")]
    if len(medians) < 2:
        return f"| {name} | local[{cores}] | {cells[0]} | {cells[1]} | - | | |"
    ratios = sorted(paired(by_server["odradek"], by_server["kafka"]))
    ratio = statistics.median(ratios)
    verdict = "PASS" if ratio >= 1.0 else "FAIL"
    spread = f"{ratio:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    return f"| {name} | local[{cores}] | {cells[0]} | {cells[1]} | {spread} | records/s at least Kafka's | {verdict} |"


def paired(ours: list[float], theirs: list[float]) -> list[float]:
    """The ratios of pairs of turns: in one of the two we were first, in the other they, and what the order brings
    cancels out."""
    turns = [our / their for our, their in zip(ours, theirs, strict=True)]
    return [math.sqrt(one * other) for one, other in zip(turns[::2], turns[1::2], strict=True)]


def _scaling(found: dict[int, dict[str, object]]) -> list[str]:
    """What the second core brings, over Odradek."""
    one, two = found[1]["rates"], found[2]["rates"]
    assert isinstance(one, dict)
    assert isinstance(two, dict)
    grown = [
        f"{name} {statistics.median(two[name]['odradek']) / statistics.median(one[name]['odradek']):.2f}"
        for name in one
        if "odradek" in one[name]
    ]
    return [f"From one core to two, over Odradek: {', '.join(grown)} times the records/s."] if grown else []


def _others(found: dict[str, object]) -> list[str]:
    lines = []
    latency = found["latency_ms"]
    assert isinstance(latency, dict)
    for kind, values in latency.items():
        values.sort()
        middle, slow = statistics.median(values), values[int(len(values) * 0.99) - 1]
        told = f"median {middle:,.0f} ms, 99th percentile {slow:,.0f} ms."
        lines += [f"From produce to the sink's topic over {kind}, a record and a trigger at a time: {told}", ""]
    if "test_s" in found:
        taken = float(str(found["test_s"]))
        floor = f"(floor: under {TEST_FLOOR_S:.0f} s, {'PASS' if taken < TEST_FLOOR_S else 'FAIL'})"
        lines.append(f"A pipeline's test in a warm session, its node included: {taken:.1f} s {floor}.")
    return lines


def _pipeline(text: str, directory: Path, name: str):  # type: ignore[no-untyped-def]
    from odradek.apps.pipelines.definition import load as load_pipeline

    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{name.replace('-', '_')}.py"
    file.write_text(text)
    return load_pipeline(str(file))


def _wishes(kind, directory: Path, *, available_now: bool = False):  # type: ignore[no-untyped-def]
    return kind(data=str(directory), available_now=available_now, quiet=True)


def _session(bootstrap: str):  # type: ignore[no-untyped-def]
    from odradek.apps.terminal.session import Session

    return Session({"bootstrap.servers": bootstrap})


def _server(kind: str) -> Server:
    if kind == "odradek":
        return OdradekServer(properties=BOTH_SERVERS)
    from bench.apache_kafka import ApacheKafka

    return ApacheKafka(properties=BOTH_SERVERS)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
