"""Measure pipelines over Odradek beside the same over Apache Kafka.

python -m bench.pipelines                     everything, writes bench/RESULTS-PIPELINES.md
python -m bench.pipelines --records 50000     less of it

Both servers run at the same time on the same machine and take turns; the Spark session is the same for both, one with
one core and one with two.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from bench.servers import OdradekServer, Server

RESULTS = Path(__file__).with_name("RESULTS-PIPELINES.md")
PARTITIONS = 4
RECORD_BYTES = 100
REPETITIONS = 3
LATENCY_RECORDS = 60
CUSTOMERS = 1_000

COPY = """
from pyspark.sql import functions as F
from odradek.apps.pipelines import Pipeline, schemas, sinks, sources

pipeline = Pipeline("{name}")
pipeline.source("records", sources.topic("bench-records", key=schemas.raw()))

@pipeline.dataset
def copy(records):
    return records.select("value", "_partition", "_offset") if {files} else records.select("value", "_key")

pipeline.sink("sink", copy, {sink})
"""

JOIN = """
from pyspark.sql import functions as F
from odradek.apps.pipelines import Pipeline, schemas, sinks, sources

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
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--repeat", type=int, default=REPETITIONS)
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
        for server in servers:
            load(server.bootstrap, options.records)
            _say(f"{server.kind}: {options.records:,} records of each kind written")
        found = {}
        for cores in (1, 2):
            task = {
                "cores": cores,
                "repeat": options.repeat,
                "servers": {server.kind: server.bootstrap for server in servers},
                "records": options.records,
            }
            command = [sys.executable, "-m", "bench.pipelines", "--measure", json.dumps(task)]
            ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found[cores] = json.loads(ended.stdout.splitlines()[-1])
    page = report(found, records=options.records, repeat=options.repeat, seconds=time.monotonic() - began)
    print(page)
    if options.server == "both":
        RESULTS.write_text(page)
    return 0


def load(bootstrap: str, count: int) -> None:
    """What the pipelines read, by librdkafka."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    topics = {"bench-records": PARTITIONS, "bench-orders": PARTITIONS, "bench-customers": 1, "latency-in": 1}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for each in admin.create_topics([NewTopic(*each, 1) for each in topics.items()]).values():
        each.result()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 2_000_000})
    for number in range(CUSTOMERS):
        producer.produce("bench-customers", json.dumps({"country": f"C{number % 50}"}), key=f"c{number}")
    for number in range(count):
        producer.produce("bench-records", b"%0*d" % (RECORD_BYTES, number), partition=number % PARTITIONS)
        at = f"2026-11-15T12:{number // 1000 % 60:02d}:{number % 60:02d}Z"
        order = f'{{"customer": "c{number % CUSTOMERS}", "amount": {number % 997}, "at": "{at}", "note": "{"x" * 20}"}}'
        producer.produce("bench-orders", order, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def _measure(task: dict[str, object]) -> dict[str, object]:
    """In a process of its own, because a session's cores are settled at its start."""
    from odradek.apps.pipelines.session import open_session, stop_session

    cores, servers, repeat = task["cores"], task["servers"], task["repeat"]
    assert isinstance(servers, dict)
    assert isinstance(repeat, int)
    directory = Path(tempfile.mkdtemp(prefix="bench-pipelines-"))
    began = time.monotonic()
    spark = open_session("bench", master=f"local[{cores}]", log_file=directory / "spark.log")
    found: dict[str, object] = {"session_s": time.monotonic() - began}
    try:
        rates: dict[str, dict[str, list[float]]] = {}
        for number in range(repeat + 1):  # The first round only warms up.
            for kind in servers if number % 2 else reversed(list(servers)):
                for name, text in PIPELINES.items():
                    rate = _rate(spark, name, text, servers[kind], directory / f"{kind}-{name}-{number}")
                    _say(f"local[{cores}] {kind} {name}: {rate:,.0f} records/s")
                    if number:
                        rates.setdefault(name, {}).setdefault(kind, []).append(rate)
        found["rates"] = rates
        if cores == 2:
            found["latency_ms"] = {
                kind: _latency(spark, at, directory / f"{kind}-latency") for kind, at in servers.items()
            }
            if "odradek" in servers:
                found["test_s"] = _warm_test(spark, directory / "test")
    finally:
        stop_session(spark)
        shutil.rmtree(directory, ignore_errors=True)
    return found


def _rate(spark: object, name: str, text: str, bootstrap: str, directory: Path) -> float:
    from odradek.apps.pipelines.runner import Wishes, run

    ran = run(
        _pipeline(text, directory, name),
        _session(bootstrap),
        _wishes(Wishes, directory, available_now=True),
        spark=spark,
    )  # type: ignore[arg-type]
    return ran.records_read / ran.seconds


def _latency(spark: object, bootstrap: str, directory: Path) -> list[float]:
    """Milliseconds from a record's produce call until a consumer has what the pipeline made of it."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    from odradek.apps.pipelines.runner import Wishes, run

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
    run(_pipeline(LATENCY, directory, "latency"), _session(bootstrap), _wishes(Wishes, directory), spark=spark)  # type: ignore[arg-type]
    return taken


def _warm_test(spark: object, directory: Path) -> float:
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
            )  # type: ignore[arg-type]
            trial.send("bench-records", "one", "two")
            trial.run()
            assert len(trial.rows("sink")) == 2
        times.append(time.monotonic() - began)
    return statistics.median(times[1:])


def report(found: dict[int, dict[str, object]], *, records: int, repeat: int, seconds: float) -> str:
    """The page."""
    lines = [
        "# Pipelines over Odradek and over Apache Kafka",
        "",
        f"`python -m bench.pipelines --records {records}`: {os.cpu_count()} cores shared by both servers, Spark and",
        f"whatever else ran; medians of {repeat} after one to warm up; {seconds / 60:.0f} minutes. Records of",
        f"{RECORD_BYTES} B, {PARTITIONS} partitions.",
        "",
        "| Pipeline | Spark | Apache Kafka | Odradek | Ratio |",
        "|---|---|---|---|---|",
    ]
    for cores, each in found.items():
        rates = each["rates"]
        assert isinstance(rates, dict)
        for name, by_server in rates.items():
            medians = {kind: statistics.median(values) for kind, values in by_server.items()}
            kafka, odradek = medians.get("kafka"), medians.get("odradek")
            ratio = f"{odradek / kafka:.2f}" if kafka and odradek else "-"
            cells = [f"{rate / 1000:,.1f} k/s" if rate else "-" for rate in (kafka, odradek)]
            lines.append(f"| {name} | local[{cores}] | {cells[0]} | {cells[1]} | {ratio} |")
    latency = found[2].get("latency_ms")
    assert isinstance(latency, dict)
    for kind, values in latency.items():
        values.sort()
        middle, slow = statistics.median(values), values[int(len(values) * 0.99) - 1]
        lines += [
            "",
            f"From produce to the sink's topic over {kind}, a record at a time: median {middle:,.0f} ms, "
            f"99th percentile {slow:,.0f} ms.",
        ]
    if "test_s" in found[2]:
        lines += ["", f"A pipeline's test in a warm session, its node included: {found[2]['test_s']:.1f} s."]
    return "\n".join(lines) + "\n"


def _pipeline(text: str, directory: Path, name: str):  # type: ignore[no-untyped-def]
    from odradek.apps.pipelines.definition import load as load_pipeline

    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{name.replace('-', '_')}.py"
    file.write_text(text)
    return load_pipeline(str(file))


def _wishes(kind, directory: Path, *, available_now: bool = False):  # type: ignore[no-untyped-def]
    return kind(data=str(directory), available_now=available_now, quiet=True)


def _session(bootstrap: str):  # type: ignore[no-untyped-def]
    from odradek.apps.cli.session import Session

    return Session({"bootstrap.servers": bootstrap})


def _server(kind: str) -> Server:
    if kind == "odradek":
        return OdradekServer()
    from bench.apache_kafka import ApacheKafka

    return ApacheKafka()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
