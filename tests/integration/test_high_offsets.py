"""Records without a timestamp, by clients nobody here wrote, in a partition whose offsets are above 2^31."""

from __future__ import annotations

import pathlib

import kafka
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from tests.leftovers import forget_sockets

from odradek.testing.cluster import ClusterNode, running_cluster

TOPIC = "high"
BASE = 3_000_000_000
PATIENCE_S = 30
NO_TIMESTAMP = -1
SETTINGS = {"segment.bytes": "1048576", "index.interval.bytes": "1"}

# kafka-python leaves sockets open whose connections failed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize("client", ["librdkafka", "kafka-python"])
def test_records_without_a_timestamp_are_kept(tmp_path: pathlib.Path, client: str) -> None:
    """A time index with entries for them would point far below its segment, and a start would fail on it."""
    with running_cluster(brokers=1, data_directory=str(tmp_path)) as cluster:
        (node,) = cluster.brokers
        admin = AdminClient({"bootstrap.servers": node.bootstrap_server, "log_level": 0})
        topic = NewTopic(TOPIC, 1, 1, config=SETTINGS)  # type: ignore[call-arg]
        admin.create_topics([topic])[TOPIC].result(PATIENCE_S)
        node.stop()
        begin_at(node, BASE)
        node.start()
        write = with_librdkafka if client == "librdkafka" else with_kafka_python
        assert write(node, ["a", "b", "c"]) == [BASE, BASE + 1, BASE + 2]
        for end in (node.stop, node.kill):
            end()
            node.start()
            assert read(node, 3) == [(BASE, "a"), (BASE + 1, "b"), (BASE + 2, "c")]
        assert found_by_time(node, 0) == -1, "no record has a time"
        assert write(node, ["d"]) == [BASE + 3]
        node.stop()
        node.start()
        assert read(node, 4)[-1] == (BASE + 3, "d")


def begin_at(node: ClusterNode, offset: int) -> None:
    """The empty log of a node that is stopped begins there, as if three milliards of records had been and gone."""
    (directory,) = (each / f"{TOPIC}-0" for each in node.data_directories)
    renamed = [path.rename(path.with_stem(f"{offset:020}")) for path in directory.glob(f"{0:020}.*")]
    assert directory / f"{offset:020}.log" in renamed


def with_librdkafka(node: ClusterNode, values: list[str]) -> list[int]:
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": node.bootstrap_server, "log_level": 0})
    for value in values:
        producer.produce(
            TOPIC,
            value.encode(),
            partition=0,
            timestamp=NO_TIMESTAMP,
            on_delivery=lambda error, message: offsets.append(-1 if error else message.offset()),
        )
        assert producer.flush(PATIENCE_S) == 0
    return offsets


def with_kafka_python(node: ClusterNode, values: list[str]) -> list[int]:
    producer = kafka.KafkaProducer(bootstrap_servers=node.bootstrap_server)
    try:
        sent = [
            producer.send(TOPIC, value.encode(), partition=0, timestamp_ms=NO_TIMESTAMP).get(PATIENCE_S).offset
            for value in values
        ]
    finally:
        producer.close()
        del producer
        forget_sockets()
    return sent


def read(node: ClusterNode, count: int) -> list[tuple[int, str]]:
    """Offsets and values from the beginning; nobody has given any of them a time."""
    consumer = Consumer(
        {"bootstrap.servers": node.bootstrap_server, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
    )
    try:
        consumer.assign([Place(TOPIC, 0, 0)])
        messages = consumer.consume(count, timeout=PATIENCE_S)
        assert {message.timestamp()[1] for message in messages} == {NO_TIMESTAMP}
        return [(message.offset(), message.value().decode()) for message in messages]
    finally:
        consumer.close()


def found_by_time(node: ClusterNode, timestamp_ms: int) -> int:
    consumer = Consumer({"bootstrap.servers": node.bootstrap_server, "group.id": "g", "log_level": 0})
    try:
        (place,) = consumer.offsets_for_times([Place(TOPIC, 0, timestamp_ms)], timeout=PATIENCE_S)
        return int(place.offset)
    finally:
        consumer.close()
