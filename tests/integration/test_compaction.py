"""Topics that are compacted on a real node, as clients nobody here wrote see them, and as their files stand."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from bench.servers import Server
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place
from tests.compat.brokers import created_topic, new_server, running

from odradek.protocol.records.batch import decode_records, iter_batches

QUICK = {
    "log.initial.task.delay.ms": "0",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.flush.scheduler.interval.ms": "200",
    "log.segment.delete.delay.ms": "1000",
}
TOPIC = "state"
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "file.delete.delay.ms": "1000"}
PATIENCE_S = 60
KEYS, ROUNDS = 100, 60
VALUE_BYTES = 1000

Table = dict[bytes, bytes]


def write(server: Server, *, codec: str = "none") -> Table:
    """Every key over and over, some of them deleted at last; what that amounts to."""
    producer = Producer({"bootstrap.servers": server.bootstrap, "compression.type": codec, "log_level": 0})
    table: Table = {}
    draw = random.Random(0)  # What can be compressed would fill no segment.
    for _ in range(ROUNDS):
        for key in (b"key-%d" % each for each in range(KEYS)):
            table[key] = draw.randbytes(VALUE_BYTES)
            producer.produce(TOPIC, table[key], key, partition=0)
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0
    for key in (b"key-%d" % each for each in range(0, KEYS, 10)):
        producer.produce(TOPIC, None, key, partition=0)
        del table[key]
    for number in range(40):  # What is compacted is sealed, so something has to come behind it.
        table[b"tail-%d" % number] = draw.randbytes(30 * VALUE_BYTES)
        producer.produce(TOPIC, table[b"tail-%d" % number], b"tail-%d" % number, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    return table


def read(server: Server) -> list[tuple[int, bytes, bytes | None]]:
    """Offset, key and value of all records from the first one on, as librdkafka's consumer gets them."""
    settings = {"bootstrap.servers": server.bootstrap, "group.id": "reader", "log_level": 0}
    found: list[tuple[int, bytes, bytes | None]] = []
    with closing(Consumer({**settings, "enable.auto.commit": False, "check.crcs": True})) as consumer:
        _, end = consumer.get_watermark_offsets(Place(TOPIC, 0), PATIENCE_S)
        consumer.assign([Place(TOPIC, 0, 0)])
        while not found or found[-1][0] < end - 1:
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            assert message.error() is None, message.error()
            found.append((message.offset(), message.key(), message.value()))
    return found


def table_of(records: list[tuple[int, bytes, bytes | None]]) -> Table:
    last = {key: value for _, key, value in records}
    return {key: value for key, value in last.items() if value is not None}


def directory_of(server: Server) -> Path:
    (found,) = server.data.glob(f"**/{TOPIC}-0")
    return found


def cleaned_offset(server: Server) -> int:
    """As the checkpoint says, in Kafka's format."""
    (*_, checkpoint) = [server.data / "none", *server.data.glob("**/cleaner-offset-checkpoint")]
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    return next((int(line.split()[2]) for line in lines[2:] if line.startswith(f"{TOPIC} 0 ")), 0)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_is_left_of_a_compacted_topic(tmp_path: Path) -> None:
    with running(new_server(tmp_path, properties=QUICK)) as server:
        created_topic(server, 1, SETTINGS, TOPIC)
        table = write(server)
        before = KEYS * ROUNDS
        until(lambda: cleaned_offset(server) >= before)
        found = read(server)
        assert table_of(found) == table
        offsets = [offset for offset, _, _ in found]
        assert offsets == sorted(set(offsets))
        clean = [key for offset, key, _ in found if offset < before]
        assert len(clean) <= KEYS, "of each key one record is left"
        assert len(set(clean)) == len(clean)
        until(
            lambda: not any(path.suffix in (".deleted", ".swap", ".cleaned") for path in directory_of(server).iterdir())
        )
        data = b"".join(path.read_bytes() for path in sorted(directory_of(server).glob("*.log")))
        on_disk = [
            (each.offset, each.key, each.value) for batch in iter_batches(data) for each in decode_records(batch)
        ]
        assert on_disk == found
        assert len(data) < KEYS * ROUNDS * VALUE_BYTES / 2
    with running(new_server(tmp_path, properties=QUICK)) as server:
        assert read(server) == found


def test_a_node_that_is_killed_while_it_compacts_loses_nothing(tmp_path: Path) -> None:
    slow = QUICK | {"log.cleaner.io.max.bytes.per.second": "1000000"}
    with running(new_server(tmp_path, properties=slow)) as server:
        created_topic(server, 1, SETTINGS, TOPIC)
        table = write(server, codec="lz4")
        until(lambda: any(path.suffix == ".cleaned" for path in directory_of(server).iterdir()))
        server.kill()
    with running(new_server(tmp_path, properties=QUICK)) as server:
        assert table_of(read(server)) == table
        until(lambda: cleaned_offset(server) > 0)
        assert table_of(read(server)) == table
