"""A full disk: the write is refused, what was acknowledged stays, and the other directory is served on."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import pytest
from bench import wire
from bench.cells import wait_for_partitions
from bench.servers import Server
from confluent_kafka import KafkaError, Message, Producer
from tests.compat.brokers import IS_KAFKA, new_server, running

KAFKA_STORAGE_ERROR = 56
SMALL_MIB, LARGE_MIB = 24, 96
NOWHERE = -1
PATIENCE_S = 30.0
pytestmark = pytest.mark.skipif(IS_KAFKA, reason="Apache Kafka gives up the directory, reads included")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with little room."""
    mount_point = tmp_path / "small"
    mount_point.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_MIB}m", "tmpfs", str(mount_point)]
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("NOT TESTED: a full disk needs a small tmpfs, and only root can mount one")
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    if outcome.returncode != 0:
        pytest.skip(f"NOT TESTED: a full disk needs a small tmpfs, and mounting it failed: {outcome.stderr.strip()}")
    yield mount_point
    subprocess.run(["umount", "-l", str(mount_point)], check=True)


def start_node(tmp_path: Path, small_disk: Path) -> Server:
    """A node whose second log directory is the small disk; its metadata is on the first."""
    large = tmp_path / "large"
    directories = {"log.dirs": f"{large},{small_disk}/data", "metadata.log.dir": str(large)}
    server = new_server(tmp_path / "node", properties=directories)
    server.data = large
    return server


def on_small_disk(topic: str, small_disk: Path) -> list[int]:
    return sorted(int(path.name.rsplit("-", 1)[1]) for path in (small_disk / "data").glob(f"{topic}-[0-9]*"))


def produce_until_refused(server: Server, topic: str, partition: int) -> tuple[int, int]:
    """(records acknowledged, error code of the first refused)."""
    with wire.Connection(server.port) as connection:
        for number in range(10 * SMALL_MIB):
            value = b"%d." % number + b"z" * 500_000
            batch = wire.record_batch([value], timestamp_ms=int(time.time() * 1000))
            answer = connection.request(wire.PRODUCE, 7, wire.produce_body(topic, [(partition, batch)], acks=-1))
            ((_, error, offset),) = wire.produce_errors(answer)
            if error:
                return number, error
            assert offset == number
    raise AssertionError("the disk did not get full")


def test_a_full_disk(tmp_path: Path, small_disk: Path) -> None:
    with running(start_node(tmp_path, small_disk)) as server:
        with wire.Connection(server.port) as connection:
            assert wire.create_topic(connection, "topic", 4) == 0
            wait_for_partitions(connection, "topic", 4)
        full_ones = on_small_disk("topic", small_disk)
        assert 0 < len(full_ones) < 4, "partitions are spread over the directories"
        victim = full_ones[0]
        fine = next(partition for partition in range(4) if partition not in full_ones)
        acknowledged, error = produce_until_refused(server, "topic", victim)
        assert error == KAFKA_STORAGE_ERROR
        assert acknowledged > 10
        assert server.process is not None
        assert server.process.poll() is None, server.log_tail()
        with wire.Connection(server.port) as connection:
            batch = wire.record_batch([b"elsewhere there is room"], timestamp_ms=int(time.time() * 1000))
            answer = connection.request(wire.PRODUCE, 7, wire.produce_body("topic", [(fine, batch)], acks=-1))
            assert wire.produce_errors(answer) == [(fine, 0, 0)]
            # A smaller batch may still fit; what is in the directory is served on in any case.
            again = connection.request(wire.PRODUCE, 7, wire.produce_body("topic", [(victim, batch)], acks=-1))
            ((_, error, offset),) = wire.produce_errors(again)
            assert (error, offset) in ((0, acknowledged), (KAFKA_STORAGE_ERROR, -1))
            end = acknowledged + (error == 0)
            assert_kept(connection, victim, acknowledged)
            assert server.log_tail().count("no space left") >= 1
    subprocess.run(["mount", "-o", f"remount,size={LARGE_MIB}m", str(small_disk)], check=True)
    with running(start_node(tmp_path, small_disk)) as server, wire.Connection(server.port, timeout_s=60) as connection:
        wait_for_partitions(connection, "topic", 4)
        assert wire.list_offsets(connection, "topic", [victim], wire.LATEST) == [(victim, 0, end)]
        assert_kept(connection, victim, acknowledged)
        batch = wire.record_batch([b"z" * 500_000], timestamp_ms=int(time.time() * 1000))
        answer = connection.request(wire.PRODUCE, 7, wire.produce_body("topic", [(victim, batch)], acks=-1))
        assert wire.produce_errors(answer) == [(victim, 0, end)]


def assert_kept(connection: wire.Connection, partition: int, count: int) -> None:
    """The first records of the partition are the numbered ones that were acknowledged."""
    for number in range(count):
        body = wire.fetch_body("topic", [(partition, number)], max_bytes=1)
        ((_, error, _, records),) = wire.fetch_records(connection.request(wire.FETCH, 11, body))
        assert error == 0
        assert b"%d.zzz" % number in records[:100]


@pytest.mark.parametrize("reserves", [False, True])
def test_retention_frees_a_disk_that_is_full_to_the_last_byte(tmp_path: Path, small_disk: Path, reserves: bool) -> None:
    """All of the node is on it, the metadata log too, and what fills it stays."""
    properties = {
        "log.dirs": f"{small_disk}/data",
        "log.initial.task.delay.ms": "500",
        "log.retention.check.interval.ms": "500",
        "log.retention.ms": "10000",
        "log.segment.delete.delay.ms": "0",
    }
    server = new_server(tmp_path / "node", properties=properties)
    with running(server):
        with wire.Connection(server.port) as connection:
            assert wire.create_topic(connection, "topic", 1) == 0
            wait_for_partitions(connection, "topic", 1)
        size_bytes, count = (500_000, 7) if reserves else (50_000, 10)
        producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 0, "log_level": 0})
        written = produce_in_order(producer, count, size_bytes)
        (segment,) = (small_disk / "data" / "topic-0").glob("*.log")
        assert (segment.stat().st_blocks * 512 > segment.stat().st_size + (1 << 20)) is reserves
        fill(small_disk / "ballast")
        impatient = Producer({"bootstrap.servers": server.bootstrap, "message.timeout.ms": 1_000, "log_level": 0})
        refused = produce_in_order(impatient, 1, 900_000)
        while refused != [NOWHERE]:  # There was room that was reserved; then it is given back, and filled as well.
            written += refused
            refused = produce_in_order(impatient, 1, 900_000)
        fill(small_disk / "ballast")
        assert shutil.disk_usage(small_disk).free == 0
        with wire.Connection(server.port) as connection:
            assert wire.list_offsets(connection, "topic", [0], wire.EARLIEST) == [(0, 0, 0)], "nothing has expired yet"
            deadline = time.monotonic() + PATIENCE_S
            while wire.list_offsets(connection, "topic", [0], wire.EARLIEST) != [(0, 0, len(written))]:
                assert time.monotonic() < deadline, server.log_tail()
                time.sleep(0.1)
        assert produce_in_order(producer, 1, 10_000) == [len(written)]
        assert server.process is not None
        assert server.process.poll() is None, server.log_tail()
    with running(server), wire.Connection(server.port) as connection:
        wait_for_partitions(connection, "topic", 1)
        assert wire.list_offsets(connection, "topic", [0], wire.EARLIEST) == [(0, 0, len(written))]
        assert wire.list_offsets(connection, "topic", [0], wire.LATEST) == [(0, 0, len(written) + 1)]


def produce_in_order(producer: Producer, count: int, size_bytes: int) -> list[int]:
    """Offsets of as many records, one after the other."""
    offsets: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        offsets.append(NOWHERE if error is not None else message.offset())

    for _ in range(count):
        producer.produce("topic", bytes(size_bytes), partition=0, on_delivery=delivered)
        assert producer.flush(PATIENCE_S) == 0
    return offsets


def fill(ballast: Path) -> None:
    """Somebody else takes all the room that is left."""
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            with pytest.raises(OSError, match="No space left"):
                write_forever(file, bytes(size))


def write_forever(file: FileIO, data: bytes) -> None:
    while True:
        file.write(data)
