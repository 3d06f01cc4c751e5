"""A full disk: the write is refused, what was acknowledged stays, and the other directory is served on."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import wire
from bench.cells import wait_for_partitions
from bench.servers import Server
from tests.compat.brokers import IS_KAFKA, new_server, running

KAFKA_STORAGE_ERROR = 56
SMALL_MIB, LARGE_MIB = 24, 96
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
