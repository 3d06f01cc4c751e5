"""What one client library produced, every other consumes: values, keys, headers, timestamps and offsets, exactly."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from bench.servers import Server
from tests.compat import maven
from tests.compat.clients import CONFLUENT, JAVA, KAFKA_PYTHON, PYTHON_CLIENTS, Client, ProducerSettings, Record

pytestmark = pytest.mark.compat

CLIENTS = [*PYTHON_CLIENTS, pytest.param(JAVA, marks=pytest.mark.java)]
PARTITIONS = 3
BASE_MS = 1_700_000_000_000


def varied_records() -> list[Record]:
    """Every corner of a record: null, empty, large; headers without, doubled and null; timestamps out of order."""
    drawn = random.Random(7)
    plain = [
        Record(
            number % PARTITIONS, BASE_MS + drawn.randrange(1_000_000), f"key-{number}".encode(), drawn.randbytes(number)
        )
        for number in range(120)
    ]
    corners = [
        Record(0, BASE_MS, None, b"no key"),
        Record(1, BASE_MS + 1, b"tombstone", None),
        Record(2, BASE_MS + 2, b"\x00", b"a key of one zero byte"),
        Record(0, BASE_MS + 3, b"", b""),
        Record(0, 1, b"old", b"librdkafka takes a timestamp of 0 for now, so 1"),
        Record(
            1, BASE_MS + 4, "ключ".encode(), b"\x00\xff" * 10, (("header", b"one"), ("header", b"two"), ("third", b""))
        ),
        Record(2, BASE_MS + 5, b"large", drawn.randbytes(600_000)),
        Record(0, BASE_MS + 6, b"after the large one", b"x", (("trace-id", drawn.randbytes(16)),)),
        Record(1, BASE_MS + 7, b"large, compresses well", b"abcdefgh" * 90_000),
    ]
    return plain + corners


def by_partition(seen: list[tuple[int, Record]]) -> dict[int, list[tuple[int, Record]]]:
    sorted_out: dict[int, list[tuple[int, Record]]] = {}
    for offset, record in seen:
        sorted_out.setdefault(record.partition, []).append((offset, record))
    return sorted_out


@pytest.mark.parametrize("producer", CLIENTS, ids=repr)
def test_every_client_reads_what_this_one_produced(
    server: Server, new_topic: Callable[..., str], producer: Client
) -> None:
    topic = new_topic(PARTITIONS)
    expected: list[tuple[int, Record]] = []
    for number, codec in enumerate(producer.compressions):
        how = ProducerSettings(compression=codec, idempotent=True) if number % 2 else ProducerSettings("1", codec)
        records = varied_records()
        expected += zip(producer.produce(server.bootstrap, topic, records, how), records, strict=True)
    wanted = by_partition(expected)
    for part in wanted.values():
        assert [offset for offset, _ in part] == list(range(len(part)))
    readers: list[Client] = [*PYTHON_CLIENTS, *([JAVA] if not maven.missing_tools() else [])]
    for reader in readers:
        if reader is KAFKA_PYTHON and not set(producer.compressions) <= set(reader.compressions):
            continue  # it cannot decompress snappy and zstd with what is installed; the next test covers it
        seen = reader.consume(server.bootstrap, topic, dict.fromkeys(range(PARTITIONS), 0), len(expected))
        assert by_partition(seen) == wanted, reader


@pytest.mark.parametrize("producer", CLIENTS, ids=repr)
def test_kafka_python_reads_what_it_can_decompress(
    server: Server, new_topic: Callable[..., str], producer: Client
) -> None:
    topic = new_topic(PARTITIONS)
    expected: list[tuple[int, Record]] = []
    for codec in KAFKA_PYTHON.compressions:
        records = varied_records()
        offsets = producer.produce(server.bootstrap, topic, records, ProducerSettings(compression=codec))
        expected += zip(offsets, records, strict=True)
    seen = KAFKA_PYTHON.consume(server.bootstrap, topic, dict.fromkeys(range(PARTITIONS), 0), len(expected))
    assert by_partition(seen) == by_partition(expected)


@pytest.mark.parametrize("client", CLIENTS, ids=repr)
def test_reading_starts_in_the_middle_of_a_batch(server: Server, new_topic: Callable[..., str], client: Client) -> None:
    topic = new_topic(1)
    records = [Record(0, BASE_MS + number, b"k", b"%d" % number) for number in range(100)]
    client.produce(server.bootstrap, topic, records, ProducerSettings(linger_ms=50))
    seen = client.consume(server.bootstrap, topic, {0: 42}, 58)
    assert seen == [(offset, records[offset]) for offset in range(42, 100)]


@pytest.mark.parametrize("client", CLIENTS, ids=repr)
def test_acks_0_arrives(server: Server, new_topic: Callable[..., str], client: Client) -> None:
    topic = new_topic(1)
    records = [Record(0, BASE_MS + number, None, b"%d" % number) for number in range(500)]
    client.produce(server.bootstrap, topic, records, ProducerSettings(acks="0"))
    seen = client.consume(server.bootstrap, topic, {0: 0}, 500)
    assert [record for _, record in seen] == records


@pytest.mark.parametrize("client", CLIENTS, ids=repr)
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_order_holds_with_requests_in_flight(
    server: Server, new_topic: Callable[..., str], client: Client, idempotent: bool
) -> None:
    topic = new_topic(4)
    records = [Record(number % 4, BASE_MS + number, None, b"%06d" % number) for number in range(8_000)]
    in_flight = 5 if idempotent else 20
    # No linger: small batches, so many requests; that is what keeps several of them in flight at once.
    how = ProducerSettings(acks="all", idempotent=idempotent, linger_ms=0, in_flight=in_flight)
    client.produce(server.bootstrap, topic, records, how)
    seen = client.consume(server.bootstrap, topic, dict.fromkeys(range(4), 0), len(records))
    for index, part in by_partition(seen).items():
        assert [record for _, record in part] == records[index::4]


@pytest.mark.java
@pytest.mark.parametrize("producer", [CONFLUENT, JAVA], ids=repr)
@pytest.mark.parametrize("consumer", [CONFLUENT, JAVA], ids=repr)
def test_a_record_with_neither_key_nor_value(
    server: Server, new_topic: Callable[..., str], producer: Client, consumer: Client
) -> None:
    topic = new_topic(1)
    records = [Record(0, BASE_MS, None, None), Record(0, BASE_MS, None, None, (("only a header", None),))]
    producer.produce(server.bootstrap, topic, records, ProducerSettings())
    assert consumer.consume(server.bootstrap, topic, {0: 0}, 2) == list(enumerate(records))
