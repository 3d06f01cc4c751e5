"""Topics with three replicas on real processes, with clients nobody here wrote, while brokers are killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing.cluster import RunningCluster, running_cluster

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    """A controller of its own, so that brokers can be killed as one likes."""
    with running_cluster(brokers=3, controllers=1) as running:
        yield running


@pytest.fixture
def admin(cluster: RunningCluster) -> AdminClient:
    found = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    _until(lambda: len(found.list_topics(timeout=PATIENCE_S).brokers) == 3)
    return found


def test_what_was_acknowledged_survives_its_leader(cluster: RunningCluster, admin: AdminClient) -> None:
    _create(admin, "survives")
    delivered: dict[int, bytes] = {}

    def note(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        assert error is None, error
        delivered[message.offset() or 0] = message.value() or b""

    producer = _producer(cluster, note)
    leader = _partition(admin, "survives").leader
    for number in range(300):
        producer.produce("survives", b"%d" % number, partition=0)
        producer.poll(0.002)
        if number == 150:
            cluster.nodes[leader].kill()
    assert producer.flush(PATIENCE_S) == 0
    assert len(delivered) == 300
    assert _partition(admin, "survives").leader != leader
    assert _read(cluster, "survives") == delivered
    cluster.nodes[leader].start()
    _until(lambda: len(_partition(admin, "survives").isrs) == 3)


def test_too_few_replicas_take_nothing(cluster: RunningCluster, admin: AdminClient) -> None:
    _create(admin, "too-few")
    leader, *others = _partition(admin, "too-few").replicas
    for other in others:
        cluster.nodes[other].kill()
    _until(lambda: _partition(admin, "too-few").isrs == [leader])
    errors: list[int] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.nodes[leader].bootstrap_server,
            "acks": "all",
            "retries": 0,
            "on_delivery": lambda error, message: errors.append(error.code() if error else 0),
            "log_level": 0,
        }
    )
    producer.produce("too-few", b"x", partition=0)
    producer.flush(PATIENCE_S)
    assert errors == [confluent_kafka.KafkaError.NOT_ENOUGH_REPLICAS]
    for other in others:
        cluster.nodes[other].start()
    _until(lambda: len(_partition(admin, "too-few").isrs) == 3)
    producer.produce("too-few", b"y", partition=0)
    producer.flush(PATIENCE_S)
    assert errors[1:] == [0]
    assert _read(cluster, "too-few") == {0: b"y"}


def test_committed_offsets_survive_their_coordinator(cluster: RunningCluster, admin: AdminClient) -> None:
    _create(admin, "grouped")
    producer = _producer(cluster, lambda error, message: None)
    for _ in range(10):
        producer.produce("grouped", b"x", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "survivors", "log_level": 0}
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition("grouped", 0, 7)], asynchronous=False)
    consumer.close()
    groups = admin.describe_consumer_groups(["survivors"])
    coordinator = groups["survivors"].result(PATIENCE_S).coordinator.id
    cluster.nodes[coordinator].kill()
    again = Consumer(settings)
    (found,) = again.committed([TopicPartition("grouped", 0)], timeout=PATIENCE_S)
    again.close()
    assert found.offset == 7
    cluster.nodes[coordinator].start()
    _until(lambda: len(_partition(admin, "grouped").isrs) == 3)


def _create(admin: AdminClient, topic: str) -> None:
    new = NewTopic(topic, 1, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([new])[topic].result(PATIENCE_S)
    _until(lambda: len(_partition(admin, topic).isrs) == 3)


def _partition(admin: AdminClient, topic: str) -> confluent_kafka.admin.PartitionMetadata:
    """As a broker sees it that lives: librdkafka does not ask another one when the first is killed meanwhile."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            found = admin.list_topics(topic, timeout=2).topics[topic].partitions
        except confluent_kafka.KafkaException:
            assert time.monotonic() < deadline, "no broker answers"
            continue
        return found[0] if found else confluent_kafka.admin.PartitionMetadata()


def _producer(
    cluster: RunningCluster, note: Callable[[confluent_kafka.KafkaError | None, confluent_kafka.Message], None]
) -> Producer:
    return Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "on_delivery": note,
            "log_level": 0,
        }
    )


def _read(cluster: RunningCluster, topic: str) -> dict[int, bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: dict[int, bytes] = {}
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            if error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                break
            continue
        found[message.offset() or 0] = message.value() or b""
    consumer.close()
    return found


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.05)
