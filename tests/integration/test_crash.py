"""kill -9 while producers write: what was acknowledged is there after the restart, in order and once."""

from __future__ import annotations

import contextlib
import random
import struct
import threading
import time
from pathlib import Path

import pytest
from bench import wire
from bench.cells import wait_for_partitions
from bench.servers import Server
from tests.compat.brokers import new_server, running

DELETE_RECORDS = 21
PARTITIONS = 3
ROUNDS = 3
IN_FLIGHT = 20


class Writer:
    """Writes numbers to one partition, many requests in flight, and remembers the offset of each acknowledged one."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.next_number = 0
        self.acknowledged: dict[int, int] = {}

    def run(self, port: int) -> None:
        """Until the broker is gone. Numbers in flight by then may have been written or not; they are not sent again."""
        drawn = random.Random(self.next_number)
        waiting: list[int] = []
        with contextlib.suppress(OSError, wire.ConnectionClosed), wire.Connection(port) as connection:
            while True:
                while len(waiting) < IN_FLIGHT:
                    number = self.next_number
                    self.next_number += 1
                    value = b"%d" % number + b"." * drawn.randrange(3_000)
                    batch = wire.record_batch([value], timestamp_ms=int(time.time() * 1000))
                    body = wire.produce_body("crash", [(self.partition, batch)], acks=-1)
                    waiting.append(number)
                    connection.send(wire.PRODUCE, 7, body)
                ((_, error, offset),) = wire.produce_errors(connection.receive())
                assert error == 0
                self.acknowledged[waiting.pop(0)] = offset


def test_nothing_acknowledged_is_lost_and_order_is_kept(tmp_path: Path) -> None:
    writers = [Writer(partition) for partition in range(PARTITIONS)]
    for round_number in range(ROUNDS):
        with running(new_server(tmp_path, properties={"log.segment.bytes": "1048576"})) as server:
            with wire.Connection(server.port) as connection:
                if round_number == 0:
                    assert wire.create_topic(connection, "crash", PARTITIONS) == 0
                wait_for_partitions(connection, "crash", PARTITIONS)
            threads = [threading.Thread(target=writer.run, args=(server.port,)) for writer in writers]
            for thread in threads:
                thread.start()
            time.sleep(1.0 + 0.3 * round_number)
            server.kill()
            for thread in threads:
                thread.join(30)
                assert not thread.is_alive()
    with running(new_server(tmp_path)) as server:
        for writer in writers:
            assert len(writer.acknowledged) > 10 * ROUNDS, "the test means to write much"
            kept = numbers_kept(server, writer.partition)
            assert kept == sorted(set(kept)), "in the order written, none twice"
            for number, offset in writer.acknowledged.items():
                assert kept[offset] == number


def test_a_torn_tail_is_cut(tmp_path: Path) -> None:
    with running(new_server(tmp_path)) as server:
        written = write_numbers(server, "torn", 50)
        server.kill()
    log = tmp_path / "data" / "torn-0" / "00000000000000000000.log"
    whole = log.read_bytes()
    batch = wire.record_batch([b"never acknowledged"], timestamp_ms=1)
    half = struct.pack(">q", written) + batch[8:40]
    log.write_bytes(whole + half)
    with running(new_server(tmp_path)) as server, wire.Connection(server.port) as connection:
        wait_for_partitions(connection, "torn", 1)
        assert wire.list_offsets(connection, "torn", [0], wire.LATEST) == [(0, 0, written)]
        body = wire.produce_body("torn", [(0, wire.record_batch([b"50"], timestamp_ms=1))], acks=-1)
        assert wire.produce_errors(connection.request(wire.PRODUCE, 7, body)) == [(0, 0, written)]
        assert numbers_kept(server, 0, topic="torn") == list(range(51))


@pytest.mark.parametrize("damage", ["flipped bits in the last batch", "garbage behind the last batch"])
def test_a_damaged_tail_is_cut(tmp_path: Path, damage: str) -> None:
    with running(new_server(tmp_path)) as server:
        written = write_numbers(server, "damaged", 50)
        server.kill()
    log = tmp_path / "data" / "damaged-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    if damage == "garbage behind the last batch":
        data += random.Random(5).randbytes(5_000)
        left = written
    else:
        data[-3] ^= 0xFF
        left = written - 1
    log.write_bytes(data)
    with running(new_server(tmp_path)) as server:
        assert numbers_kept(server, 0, topic="damaged") == list(range(left))


def test_a_topic_made_anew_does_not_start_where_its_predecessor_did(tmp_path: Path) -> None:
    with running(new_server(tmp_path)) as server:
        write_numbers(server, "anew", 500)
        with wire.Connection(server.port) as connection:
            partition = struct.pack(">iq", 0, 400)
            body = wire.array([wire.string("anew") + wire.array([partition])]) + struct.pack(">i", 10_000)
            connection.request(DELETE_RECORDS, 1, body)
            assert wire.list_offsets(connection, "anew", [0], wire.EARLIEST) == [(0, 0, 400)]
    with running(new_server(tmp_path)) as server:
        with wire.Connection(server.port) as connection:
            assert wire.delete_topic(connection, "anew") == 0
        write_numbers(server, "anew", 10)
        server.kill()
    with running(new_server(tmp_path)) as server:
        assert numbers_kept(server, 0, topic="anew") == list(range(10))


def write_numbers(server: Server, topic: str, count: int) -> int:
    """That many acknowledged batches of one number each; the end offset."""
    with wire.Connection(server.port) as connection:
        assert wire.create_topic(connection, topic, 1) == 0
        wait_for_partitions(connection, topic, 1)
        for number in range(count):
            batch = wire.record_batch([b"%d" % number], timestamp_ms=int(time.time() * 1000))
            answer = connection.request(wire.PRODUCE, 7, wire.produce_body(topic, [(0, batch)], acks=-1))
            assert wire.produce_errors(answer) == [(0, 0, number)]
    return count


def numbers_kept(server: Server, partition: int, topic: str = "crash") -> list[int]:
    """The numbers of a partition by offset, from its beginning to its end."""
    numbers: list[int] = []
    with wire.Connection(server.port) as connection:
        wait_for_partitions(connection, topic, partition + 1)
        ((_, _, end),) = wire.list_offsets(connection, topic, [partition], wire.LATEST)
        while len(numbers) < end:
            body = wire.fetch_body(topic, [(partition, len(numbers))], max_bytes=1 << 20)
            ((_, error, _, records),) = wire.fetch_records(connection.request(wire.FETCH, 11, body))
            assert error == 0
            for offset, value in single_values(records):
                if offset >= len(numbers):
                    assert offset == len(numbers), "offsets have no gap"
                    numbers.append(int(value.split(b".")[0]))
    return numbers


def single_values(records: bytes) -> list[tuple[int, bytes]]:
    """(offset, value) of whole batches that hold one uncompressed record without key and headers each."""
    found, position = [], 0
    while position + 61 <= len(records):
        offset, length = struct.unpack_from(">qi", records, position)
        end = position + 12 + length
        if end > len(records):
            break
        body = position + 61
        while records[body] & 0x80:
            body += 1
        body += 1 + 4  # the record's length; attributes, timestamp and offset deltas of 0, and a key length of -1
        while records[body] & 0x80:
            body += 1
        found.append((offset, records[body + 1 : end - 1]))
        position = end
    return found
