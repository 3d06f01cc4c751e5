"""Every measurement by name: how it is made, what it yields, and the floor it must not miss."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from bench import group_load, rdkafka_load, replay, transaction_load, wire
from bench.java_load import JavaLoad
from bench.measure import cpu_seconds, median, memory_mib
from bench.servers import Server

MEGABYTE = 1_000_000
TUNED_BATCH = 262_144
REBALANCES = 5
"""Of one measurement."""

Metrics = dict[str, float]


@dataclass(frozen=True)
class Floor:
    """What Odradek must reach: a limit on its own number, or on its ratio to Kafka's."""

    metric: str
    limit: float
    ratio: bool
    goal: float | None = None
    compared: str = ""
    """Which number the reader sees beside Kafka's, where it is not the one that is limited."""

    def words(self) -> str:
        return f"{self.metric} at most {self.limit:g}{' of Kafka' if self.ratio else ''}"

    def holds(self, odradek: Metrics, kafka: Metrics | None) -> bool | None:
        """Whether it is met; None where it cannot be said without Kafka's number."""
        if not self.ratio:
            return odradek[self.metric] <= self.limit
        return None if kafka is None else odradek[self.metric] <= self.limit * kafka[self.metric]


PRODUCE_FLOOR = Floor("cpu_s_per_gb", 0.75, ratio=True, goal=0.45)
LZ4_FLOOR = Floor("cpu_s_per_gb", 0.8, ratio=True, goal=0.45)
"""Both brokers look at every record: what is compressed is unpacked for it."""
CONSUME_FLOOR = Floor("cpu_s_per_gb", 1.1, ratio=True, goal=0.9)


@dataclass(frozen=True)
class Cell:
    """One measurement, repeatable on any server."""

    name: str
    run: Callable[[Rig, Server], Metrics]
    floor: Floor | None = None
    quick: bool = False
    more_repetitions: int = 0


class Rig:
    """What measurements share: the warm Java client, and topics that several repetitions read."""

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self._java: JavaLoad | None = None
        self._datasets: dict[tuple[str, str], str] = {}
        self._numbers = itertools.count()

    @property
    def java(self) -> JavaLoad:
        """Started when first needed."""
        if self._java is None:
            self._java = JavaLoad()
        return self._java

    def close(self) -> None:
        if self._java is not None:
            self._java.__exit__()

    def records(self, size: int, megabytes: float) -> int:
        """How many records of that size make up the data of one measurement."""
        return int(megabytes * self.scale * MEGABYTE) // size

    def topic(self, server: Server, partitions: int) -> str:
        """A fresh topic that every partition of which answers."""
        name = self.name("bench")
        with wire.Connection(server.port) as connection:
            error = wire.create_topic(connection, name, partitions)
            if error:
                raise RuntimeError(f"CreateTopics answered error {error}")
            wait_for_partitions(connection, name, partitions)
        return name

    def name(self, kind: str) -> str:
        """One that no other measurement uses."""
        return f"{kind}-{next(self._numbers)}"

    def drop(self, server: Server, topic: str) -> None:
        with wire.Connection(server.port) as connection:
            wire.delete_topic(connection, topic)

    def dataset(self, server: Server, key: str, make: Callable[[], str]) -> str:
        """The topic that `make` filled for this server the first time it was asked for."""
        if (server.kind, key) not in self._datasets:
            self._datasets[server.kind, key] = make()
        return self._datasets[server.kind, key]

    def drop_dataset(self, server: Server, key: str) -> None:
        """Delete the topic that was filled under this name, where there is one."""
        topic = self._datasets.pop((server.kind, key), None)
        if topic is not None:
            self.drop(server, topic)


def wait_for_partitions(connection: wire.Connection, topic: str, partitions: int, timeout_s: float = 60.0) -> None:
    """Until the leader of every partition answers ListOffsets without an error."""
    waiting: list[int] = list(range(partitions))
    deadline = time.monotonic() + timeout_s
    while waiting:
        answers = wire.list_offsets(connection, topic, waiting, wire.LATEST)
        waiting = [partition for partition, error, _ in answers if error]
        if waiting and time.monotonic() > deadline:
            raise RuntimeError(f"{len(waiting)} of {partitions} partitions of {topic} do not answer")
        if waiting:
            time.sleep(0.005)


@dataclass(frozen=True)
class Shape:
    """One corner of the cube that produce and consume are measured in."""

    client: str
    size: int
    partitions: int
    tuned: bool
    codec: str
    acks: str = "1"

    def name(self, verb: str) -> str:
        parts = [
            verb,
            {100: "100B", 1024: "1KiB"}[self.size],
            f"{self.partitions}p",
            "tuned" if self.tuned else "default",
        ]
        parts += [f"acks{self.acks}"] if verb == "produce" else []
        parts += [self.codec] if self.codec != "none" else []
        parts += [self.client] if self.client != "java" else []
        return "-".join(parts)

    def producer_settings(self) -> dict[str, str]:
        settings = {"acks": self.acks, "compression.type": self.codec}
        if self.client == "rdkafka":
            # librdkafka's own batch.size is 1 MB; the measurement is about the same batches from either client.
            settings |= {"batch.size": str(TUNED_BATCH if self.tuned else 16_384)}
            settings |= {"linger.ms": "10" if self.tuned else "5"}
        elif self.tuned:
            settings |= {"batch.size": str(TUNED_BATCH), "linger.ms": "10", "buffer.memory": str(64 * 1024 * 1024)}
        return settings

    def produce_megabytes(self) -> float:
        return 60 if self.size == 100 else 120

    def consume_megabytes(self) -> float:
        return 120 if self.size == 100 else 300


def payloads(size: int) -> list[bytes]:
    """Random letters like kafka-producer-perf-test's, more of them than a compressor looks back on."""
    drawn = random.Random(size)
    return [bytes(drawn.choices(range(65, 91), k=size)) for _ in range(256 * 1024 // size)]


def all_cells() -> list[Cell]:
    """In the order of the report."""
    return [
        *_produce_cells(),
        *_consume_cells(),
        *_wire_cells(),
        *_single_cells(),
        *_group_cells(),
        *_transaction_cells(),
    ]


def _produce_cells() -> Iterator[Cell]:
    for client, size, partitions, tuned, acks, codec in itertools.product(
        ("java", "rdkafka"), (100, 1024), (1, 6), (False, True), ("1", "all"), ("none", "lz4")
    ):
        shape = Shape(client=client, size=size, partitions=partitions, tuned=tuned, codec=codec, acks=acks)
        quick = codec == "none" and acks == "1" and (client == "java" or partitions == 1)
        yield Cell(shape.name("produce"), _produce(shape), PRODUCE_FLOOR if codec == "none" else LZ4_FLOOR, quick=quick)
    for codec in ("gzip", "snappy", "zstd"):
        for size, tuned in itertools.product((100, 1024), (False, True)):
            shape = Shape(client="java", size=size, partitions=1, tuned=tuned, codec=codec, acks="1")
            yield Cell(shape.name("produce"), _produce(shape), None, quick=False)


def _consume_cells() -> Iterator[Cell]:
    for client, size, partitions, tuned, codec in itertools.product(
        ("java", "rdkafka"), (100, 1024), (1, 6), (False, True), ("none", "lz4")
    ):
        shape = Shape(client=client, size=size, partitions=partitions, tuned=tuned, codec=codec)
        quick = codec == "none" and (client == "java" or partitions == 1)
        name = shape.name("consume")
        # Reading costs the broker little but what the kernel does, and that varies more from run to run.
        yield Cell(name, _consume(shape), CONSUME_FLOOR, quick=quick, more_repetitions=2)


def _wire_cells() -> Iterator[Cell]:
    for name, batch_bytes, partitions, megabytes in (
        ("wire-produce-16KiB-1p", 16_000, 1, 200),
        ("wire-produce-16KiB-6p", 16_000, 6, 300),
        ("wire-produce-256KiB-1p", 256_000, 1, 400),
    ):
        yield Cell(name, _wire_produce(batch_bytes, partitions, megabytes), PRODUCE_FLOOR, quick=True)
    for name, batch_bytes in (("wire-fetch-16KiB", 16_000), ("wire-fetch-256KiB", 256_000)):
        yield Cell(name, _wire_fetch(name, batch_bytes), CONSUME_FLOOR, quick=True, more_repetitions=2)


def _single_cells() -> Iterator[Cell]:
    each = Floor("cpu_us_per_request", 30, ratio=False)
    yield Cell("single-record", _single_java, each, quick=True)
    yield Cell("single-record-wire-5", _single_wire(5), each, quick=True)
    # Strictly one at a time: mostly what a wake-up costs, so it is shown but has no floor.
    yield Cell("single-record-wire-1", _single_wire(1), quick=True)
    yield Cell("latency-1000", _latency, Floor("cpu_percent", 0.5, ratio=True), quick=True)
    yield Cell("latency-1000-wire", _latency_wire, Floor("cpu_percent", 0.5, ratio=True), quick=True)
    yield Cell("idle-memory", _idle_memory, Floor("rss_mib", 64, ratio=False), quick=True)
    yield Cell("start", _start, Floor("seconds", 0.1, ratio=True), quick=True)
    yield Cell("partitions-1000", _thousand_partitions, Floor("seconds", 1.0, ratio=True), quick=True)


def _group_cells() -> Iterator[Cell]:
    for members in (10, 100, 1_000):
        yield Cell(f"rebalance-{members}", _rebalance(members), Floor("rebalance_ms", 1.0, ratio=True), quick=True)
    commits = Floor("cpu_us_per_request", 1.0, ratio=True)
    yield Cell("commit-1", _commit(1), quick=True)
    yield Cell("commit-50", _commit(50), commits, quick=True)
    yield Cell("idle-members-1000", _idle_members, Floor("cpu_percent", 1.0, ratio=True), quick=True)


def _transaction_cells() -> Iterator[Cell]:
    per_gigabyte = Floor("cpu_s_per_gb", 1.0, ratio=True)
    for size, duration_ms in itertools.product((100, 1024), (100, 10)):
        shape = Shape(client="java", size=size, partitions=6, tuned=False, codec="none", acks="all")
        name = f"transactions-{'100B' if size == 100 else '1KiB'}-6p-{duration_ms}ms"
        yield Cell(name, _transactional_produce(shape, duration_ms), per_gigabyte, quick=size == 1024)
    each = Floor("cpu_us_per_request", 1.0, ratio=True)
    yield Cell("transaction-empty", _empty_transactions, each, quick=True)
    yield Cell("transaction-one-record", _one_record_transactions, each, quick=True)
    yield Cell("consume-committed-1KiB-6p", _consume_committed, per_gigabyte, quick=True, more_repetitions=2)


def _transactional_produce(shape: Shape, duration_ms: int) -> Callable[[Rig, Server], Metrics]:
    def run(rig: Rig, server: Server) -> Metrics:
        records = rig.records(shape.size, shape.produce_megabytes())
        topic = rig.topic(server, shape.partitions)
        before = cpu_seconds(server.pid)
        seconds = _send_in_transactions(rig, server, topic, shape, records, duration_ms)
        spent = cpu_seconds(server.pid) - before
        rig.drop(server, topic)
        return _per_gigabyte(spent, seconds, records * shape.size) | {"records_per_s": records / seconds}

    return run


def _send_in_transactions(rig: Rig, server: Server, topic: str, shape: Shape, records: int, duration_ms: int) -> float:
    return rig.java.produce(
        server.bootstrap,
        topic,
        records=records,
        size=shape.size,
        settings=shape.producer_settings(),
        transaction=(rig.name("transactions"), duration_ms),
    ).seconds


def _empty_transactions(rig: Rig, server: Server) -> Metrics:
    transactions = int(5_000 * rig.scale)
    topic = rig.topic(server, 1)
    before = cpu_seconds(server.pid)
    names = [rig.name("transactions") for _ in range(20)]
    seconds = transaction_load.empty_transactions(server.port, topic, names=names, transactions=transactions)
    return _per_transaction(rig, server, topic, cpu_seconds(server.pid) - before, seconds, transactions)


def _one_record_transactions(rig: Rig, server: Server) -> Metrics:
    transactions = int(3_000 * rig.scale)
    topic = rig.topic(server, 1)
    before = cpu_seconds(server.pid)
    seconds = rig.java.transactions(server.bootstrap, topic, name=rig.name("transactions"), count=transactions)
    return _per_transaction(rig, server, topic, cpu_seconds(server.pid) - before, seconds, transactions)


def _per_transaction(rig: Rig, server: Server, topic: str, spent: float, seconds: float, count: int) -> Metrics:
    rig.drop(server, topic)
    return {"cpu_us_per_request": spent / count * 1e6, "requests_per_s": count / seconds}


def _consume_committed(rig: Rig, server: Server) -> Metrics:
    shape = Shape(client="java", size=1024, partitions=6, tuned=False, codec="none", acks="all")
    records = rig.records(shape.size, shape.consume_megabytes())

    def make() -> str:
        topic = rig.topic(server, shape.partitions)
        _send_in_transactions(rig, server, topic, shape, records, 100)
        return topic

    topic = rig.dataset(server, "committed", make)
    settings = {"isolation.level": "read_committed"}
    before = cpu_seconds(server.pid)
    seconds = rig.java.consume(server.bootstrap, topic, partitions=shape.partitions, records=records, settings=settings)
    return _per_gigabyte(cpu_seconds(server.pid) - before, seconds, records * shape.size)


def _produce(shape: Shape) -> Callable[[Rig, Server], Metrics]:
    def run(rig: Rig, server: Server) -> Metrics:
        records = rig.records(shape.size, shape.produce_megabytes())
        topic = rig.topic(server, shape.partitions)
        before = cpu_seconds(server.pid)
        seconds = _send(rig, server, topic, shape, records)
        spent = cpu_seconds(server.pid) - before
        rig.drop(server, topic)
        return _per_gigabyte(spent, seconds, records * shape.size)

    return run


def _send(rig: Rig, server: Server, topic: str, shape: Shape, records: int) -> float:
    settings = shape.producer_settings()
    if shape.client == "java":
        return rig.java.produce(server.bootstrap, topic, records=records, size=shape.size, settings=settings).seconds
    return rdkafka_load.produce(
        server.bootstrap,
        topic,
        partitions=shape.partitions,
        records=records,
        payloads=payloads(shape.size),
        settings=settings,
    )


def _consume(shape: Shape) -> Callable[[Rig, Server], Metrics]:
    def run(rig: Rig, server: Server) -> Metrics:
        records = rig.records(shape.size, shape.consume_megabytes())

        def make() -> str:
            topic = rig.topic(server, shape.partitions)
            _send(rig, server, topic, shape, records)
            return topic

        topic = rig.dataset(server, shape.name("consume"), make)
        consume = rig.java.consume if shape.client == "java" else rdkafka_load.consume
        settings = {"max.partition.fetch.bytes": str(8 << 20)} if shape.tuned else {}
        before = cpu_seconds(server.pid)
        seconds = consume(server.bootstrap, topic, partitions=shape.partitions, records=records, settings=settings)
        return _per_gigabyte(cpu_seconds(server.pid) - before, seconds, records * shape.size)

    return run


def _wire_produce(batch_bytes: int, partitions: int, megabytes: float) -> Callable[[Rig, Server], Metrics]:
    def run(rig: Rig, server: Server) -> Metrics:
        topic = rig.topic(server, partitions)
        frame = replay.produce_frame(topic, _batch(batch_bytes), partitions=partitions)
        requests = rig.records(batch_bytes * partitions, megabytes)
        before = cpu_seconds(server.pid)
        seconds = replay.produce(server.port, frame, requests=requests, in_flight=5)
        spent = cpu_seconds(server.pid) - before
        rig.drop(server, topic)
        return _per_gigabyte(spent, seconds, len(frame) * requests)

    return run


def _wire_fetch(key: str, batch_bytes: int) -> Callable[[Rig, Server], Metrics]:
    def run(rig: Rig, server: Server) -> Metrics:
        def make() -> str:
            topic = rig.topic(server, 1)
            frame = replay.produce_frame(topic, _batch(batch_bytes), partitions=1)
            replay.produce(server.port, frame, requests=rig.records(batch_bytes, 200), in_flight=5)
            return topic

        topic = rig.dataset(server, key, make)
        offsets = replay.fetch_offsets(server.port, topic, max_bytes=1 << 20)
        before = cpu_seconds(server.pid)
        received, seconds = replay.fetch(server.port, topic, offsets, max_bytes=1 << 20, passes=3)
        return _per_gigabyte(cpu_seconds(server.pid) - before, seconds, received)

    return run


def _single_java(rig: Rig, server: Server) -> Metrics:
    records = int(60_000 * rig.scale)
    topic = rig.topic(server, 1)
    before = cpu_seconds(server.pid)
    # A batch that holds one record: with one partition, each request carries exactly one.
    settings = {"acks": "1", "batch.size": "0", "linger.ms": "0"}
    produced = rig.java.produce(server.bootstrap, topic, records=records, size=100, settings=settings)
    spent = cpu_seconds(server.pid) - before
    rig.drop(server, topic)
    return {"cpu_us_per_request": spent / records * 1e6, "requests_per_s": records / produced.seconds}


def _single_wire(in_flight: int) -> Callable[[Rig, Server], Metrics]:
    def run(rig: Rig, server: Server) -> Metrics:
        requests = int(40_000 * rig.scale)
        topic = rig.topic(server, 1)
        frame = replay.produce_frame(topic, _batch(100), partitions=1)
        before = cpu_seconds(server.pid)
        seconds = replay.produce(server.port, frame, requests=requests, in_flight=in_flight)
        spent = cpu_seconds(server.pid) - before
        rig.drop(server, topic)
        return {"cpu_us_per_request": spent / requests * 1e6, "requests_per_s": requests / seconds}

    return run


def _latency(rig: Rig, server: Server) -> Metrics:
    topic = rig.topic(server, 1)
    settings = {"acks": "1", "linger.ms": "0"}
    rig.java.produce(server.bootstrap, topic, records=1_000, size=100, settings=settings, rate=1_000)
    records = int(10_000 * rig.scale)
    before = cpu_seconds(server.pid)
    produced = rig.java.produce(server.bootstrap, topic, records=records, size=100, settings=settings, rate=1_000)
    spent = cpu_seconds(server.pid) - before
    rig.drop(server, topic)
    return {"p50_ms": produced.p50_ms, "p99_ms": produced.p99_ms, "cpu_percent": _at_a_thousand(spent, records)}


def _latency_wire(rig: Rig, server: Server) -> Metrics:
    topic = rig.topic(server, 1)
    frame = replay.produce_frame(topic, _batch(100), partitions=1)
    replay.produce(server.port, frame, requests=1_000, in_flight=1)
    before = cpu_seconds(server.pid)
    latencies = replay.paced(server.port, frame, requests=int(8_000 * rig.scale), rate=1_000)
    spent = cpu_seconds(server.pid) - before
    rig.drop(server, topic)
    p50, p99 = (latencies[int(len(latencies) * share)] * 1_000 for share in (0.50, 0.99))
    return {"p50_ms": p50, "p99_ms": p99, "cpu_percent": _at_a_thousand(spent, len(latencies))}


def _rebalance(members: int) -> Callable[[Rig, Server], Metrics]:
    def run(rig: Rig, server: Server) -> Metrics:
        with closing(group_load.Group(server.port, rig.name("group"), members)) as group:
            group.form()
            before = cpu_seconds(server.pid)
            times = [group.rebalance() for _ in range(REBALANCES)]
            spent = cpu_seconds(server.pid) - before
        return {"rebalance_ms": median(times) * 1_000, "cpu_ms": spent / REBALANCES * 1_000}

    return run


def _commit(members: int) -> Callable[[Rig, Server], Metrics]:
    def run(rig: Rig, server: Server) -> Metrics:
        commits = int((20_000 if members > 1 else 4_000) * rig.scale)
        topic = rig.topic(server, 1)
        with closing(group_load.Group(server.port, rig.name("group"), members)) as group:
            group.form()
            group.commit(topic, commits // 4)
            before = cpu_seconds(server.pid)
            seconds = group.commit(topic, commits)
            spent = cpu_seconds(server.pid) - before
        rig.drop(server, topic)
        return {"cpu_us_per_request": spent / commits * 1e6, "requests_per_s": commits / seconds}

    return run


def _idle_members(rig: Rig, server: Server) -> Metrics:
    seconds = 10 * rig.scale
    with closing(group_load.Group(server.port, rig.name("group"), 1_000)) as group:
        group.form()
        group.beat(3.0)
        before = cpu_seconds(server.pid)
        group.beat(seconds)
        spent = cpu_seconds(server.pid) - before
    return {"cpu_percent": spent / seconds * 100}


def _at_a_thousand(cpu: float, records: int) -> float:
    # By the record, not by the clock: a client that cannot keep up on a busy machine would make the broker look cheap.
    return cpu / records * 1_000 * 100


def _idle_memory(rig: Rig, server: Server) -> Metrics:
    with type(server)() as fresh:
        topic = rig.topic(fresh, 1)
        with wire.Connection(fresh.port) as connection:
            body = wire.produce_body(topic, [(0, _batch(100))], acks=1)
            connection.request(wire.PRODUCE, 7, body)
        time.sleep(3.0)
        resident, proportional = memory_mib(fresh.pid)
        before = cpu_seconds(fresh.pid)
        time.sleep(2.0)
        return {
            "rss_mib": resident,
            "pss_mib": proportional,
            "idle_cpu_percent": (cpu_seconds(fresh.pid) - before) * 50,
        }


def _start(rig: Rig, server: Server) -> Metrics:
    fresh = type(server)()
    fresh.format()
    started = time.monotonic()
    fresh.spawn()
    try:
        seconds = first_acknowledged(fresh.port, deadline=started + 60) - started
        return {"seconds": seconds, "cpu_seconds": cpu_seconds(fresh.pid)}
    finally:
        fresh.__exit__()


def first_acknowledged(port: int, *, deadline: float) -> float:
    """When a first record, to a topic that did not exist, was acknowledged."""
    created = False
    while time.monotonic() < deadline:
        try:
            with wire.Connection(port) as connection:
                while time.monotonic() < deadline:
                    if not created:
                        created = wire.brokers_known(connection) > 0 and wire.create_topic(connection, "first", 1) in (
                            0,
                            36,
                        )
                    body = wire.produce_body("first", [(0, _batch(100))], acks=1)
                    if created and not wire.produce_errors(connection.request(wire.PRODUCE, 7, body))[0][1]:
                        return time.monotonic()
                    time.sleep(0.002)
        except (OSError, wire.ConnectionClosed):
            time.sleep(0.002)
    raise RuntimeError("no record was acknowledged in time")


def _thousand_partitions(rig: Rig, server: Server) -> Metrics:
    partitions = 1_000
    before, started = cpu_seconds(server.pid), time.monotonic()
    topic = rig.topic(server, partitions)
    seconds = time.monotonic() - started
    spent = cpu_seconds(server.pid) - before
    rig.drop(server, topic)
    return {"seconds": seconds, "cpu_seconds": spent}


def _batch(size: int) -> bytes:
    return wire.record_batch([payloads(100)[0]] * max(size // 108, 1), timestamp_ms=int(time.time() * 1000))


def _per_gigabyte(cpu: float, seconds: float, size_bytes: int) -> Metrics:
    return {"cpu_s_per_gb": cpu / (size_bytes / 1e9), "mb_per_s": size_bytes / seconds / MEGABYTE}
