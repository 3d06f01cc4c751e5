"""Starting and stopping a node process: signals, exit codes, the lock on its directory, damaged files."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bench import wire
from bench.cells import wait_for_partitions
from tests.compat.brokers import CLEAN_EXIT_CODE, IS_KAFKA, new_server, running
from tests.integration.test_crash import numbers_kept, write_numbers

CLEAN_MARKER = ".kafka_cleanshutdown"
SMALL_INDEX_INTERVAL = {"log.index.interval.bytes": "0", "log.segment.bytes": "1048576"}


def test_sigterm_stops_cleanly(tmp_path: Path) -> None:
    server = new_server(tmp_path)
    server.format()
    server.spawn()
    server.wait_until_ready()
    assert not (server.data / CLEAN_MARKER).exists(), "a running node has not been shut down cleanly"
    write_numbers(server, "kept", 20)
    assert server.stop() == CLEAN_EXIT_CODE, server.log_tail()
    assert (server.data / CLEAN_MARKER).exists()
    with running(new_server(tmp_path)) as again:
        assert numbers_kept(again, 0, topic="kept") == list(range(20))


def test_sigterm_does_not_wait_for_a_parked_fetch(tmp_path: Path) -> None:
    server = new_server(tmp_path)
    server.format()
    server.spawn()
    server.wait_until_ready()
    write_numbers(server, "waited-for", 1)
    with wire.Connection(server.port) as connection:
        connection.send(wire.FETCH, 11, wire.fetch_body("waited-for", [(0, 1)], max_bytes=1_000, max_wait_ms=60_000))
        time.sleep(0.2)
        started = time.monotonic()
        assert server.stop() == CLEAN_EXIT_CODE
        assert time.monotonic() - started < 20


@pytest.mark.skipif(IS_KAFKA, reason="the JVM ends by the signal itself")
def test_ctrl_c_stops_cleanly(tmp_path: Path) -> None:
    server = new_server(tmp_path)
    server.spawn()
    server.wait_until_ready()
    assert server.process is not None
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(20) == 0
    assert "Traceback" not in server.log_tail()


def test_a_second_node_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with running(new_server(tmp_path)) as first:
        write_numbers(first, "mine", 5)
        second = new_server(tmp_path)
        second.log_file = tmp_path / "second.log"
        second.spawn()
        assert second.process is not None
        assert second.process.wait(30) != 0
        said = second.log_tail()
        if not IS_KAFKA:
            assert "in use by another process" in said
            assert "Traceback" not in said
        assert numbers_kept(first, 0, topic="mine") == list(range(5))


def garbage(path: Path) -> None:
    path.write_bytes(b"\xde\xad\xbe\xef" * 13)


def odd_size(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:24].ljust(24, b"\x01") + b"\x00\x00\x01")


def missing(path: Path) -> None:
    path.unlink()


INDEX, TIME_INDEX = "damaged-0/00000000000000000000.index", "damaged-0/00000000000000000000.timeindex"
DAMAGES = [(name, harm) for name in (INDEX, TIME_INDEX) for harm in (garbage, odd_size, missing)]
if not IS_KAFKA:  # which gives a directory up when a checkpoint in it cannot be read
    DAMAGES += [("recovery-point-offset-checkpoint", garbage), ("log-start-offset-checkpoint", garbage)]
    DAMAGES += [("replication-offset-checkpoint", garbage)]


@pytest.mark.parametrize("ending", ["clean stop", "kill -9"])
@pytest.mark.parametrize(
    ("name", "harm"), DAMAGES, ids=[f"{harm.__name__}-{Path(name).name}" for name, harm in DAMAGES]
)
def test_a_damaged_index_or_checkpoint_is_made_anew(
    tmp_path: Path, name: str, harm: Callable[[Path], None], ending: str
) -> None:
    with running(new_server(tmp_path, properties=SMALL_INDEX_INTERVAL)) as server:
        write_numbers(server, "damaged", 30)
        if ending == "kill -9":
            server.kill()
    path = tmp_path / "data" / name
    path.touch()
    harm(path)
    with running(new_server(tmp_path, properties=SMALL_INDEX_INTERVAL)) as server:
        assert numbers_kept(server, 0, topic="damaged") == list(range(30))
        with wire.Connection(server.port) as connection:
            body = wire.fetch_body("damaged", [(0, 17)], max_bytes=1 << 20)
            ((_, error, high_watermark, records),) = wire.fetch_records(connection.request(wire.FETCH, 11, body))
            assert (error, high_watermark, wire.end_offset(records)) == (0, 30, 30)
            batch = wire.record_batch([b"30"], timestamp_ms=int(time.time() * 1000))
            answer = connection.request(wire.PRODUCE, 7, wire.produce_body("damaged", [(0, batch)], acks=-1))
            assert wire.produce_errors(answer) == [(0, 0, 30)]


def test_topics_survive_many_restarts(tmp_path: Path) -> None:
    for number in range(3):
        with running(new_server(tmp_path)) as server, wire.Connection(server.port) as connection:
            for earlier in range(number):
                wait_for_partitions(connection, f"topic-{earlier}", 4)
            assert wire.create_topic(connection, f"topic-{number}", 4) == 0
            wait_for_partitions(connection, f"topic-{number}", 4)
            if number == 1:
                server.kill()
    with running(new_server(tmp_path)) as server, wire.Connection(server.port) as connection:
        for number in range(3):
            assert [error for _, error, _ in wire.list_offsets(connection, f"topic-{number}", range(4), -1)] == [0] * 4
