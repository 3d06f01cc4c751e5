"""Brokers that are killed have lost nothing and say so; where a log directory cannot vouch for that, they do not."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.adapters.disk import RealDisk
from odradek.testing.cluster import ClusterNode, ProcessNode, RunningCluster, running_cluster

PATIENCE_S = 60.0
RECORDS = 50
TOPIC = "kept"
MARK = ".odradek_running"
NOTHING_LOST = re.compile(r"Registered broker \d+ with epoch \d+, and told that nothing of epoch (\d+) is lost")

pytestmark = pytest.mark.skipif(not RealDisk().boot_id(), reason="this operating system does not tell its boots apart")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    """A controller of its own, so that all brokers can be killed; two log directories each."""
    with running_cluster(brokers=3, controllers=1, log_dirs=2, properties={"min.insync.replicas": "2"}) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers, "log_level": 0})
        _until(lambda: len(admin.list_topics(timeout=PATIENCE_S).brokers) == 3)
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(PATIENCE_S)
        _produce(running)
        yield running


def test_two_of_three_that_were_killed_at_once_are_enough(cluster: RunningCluster) -> None:
    """Any two: one of them at least is in the ISR or eligible, and is not taken for one that has lost its tail."""
    for node in cluster.brokers:
        node.kill()
    for node in cluster.brokers[:2]:
        node.begin()
    for node in cluster.brokers[:2]:
        node.wait_until_ready()
    assert len(_read(cluster.brokers[0])) == RECORDS
    cluster.start()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    _until(lambda: [len(each.isrs) for each in _partitions(admin)] == [3])
    assert [_epochs_kept(node) for node in cluster.brokers] == [1, 1, 1]


def test_a_mark_that_is_gone_or_of_another_boot_is_not_believed(cluster: RunningCluster) -> None:
    node = cluster.brokers[2]
    first, second = (directory / MARK for directory in node.data_directories)
    node.kill()
    kept = _epochs_kept(node)
    second.unlink()
    node.start()
    assert _epochs_kept(node) == kept
    node.kill()
    other_boot = json.loads(first.read_text()) | {"bootId": "00000000-0000-0000-0000-000000000000"}
    first.write_text(json.dumps(other_boot))
    node.start()
    assert _epochs_kept(node) == kept
    node.kill()
    node.start()
    assert _epochs_kept(node) == kept + 1


def test_with_the_switch_off_a_killed_broker_registers_as_unclean(cluster: RunningCluster) -> None:
    node = cluster.brokers[2]
    settings = node.properties_file.read_text(encoding="utf-8")
    node.properties_file.write_text(settings + "\nodradek.trust.killed.logs.enable=false\n", encoding="utf-8")
    kept = _epochs_kept(node)
    for _ in range(2):
        node.kill()
        node.start()
        assert _epochs_kept(node) == kept
        assert not any((directory / MARK).exists() for directory in node.data_directories)
    node.stop()
    node.start()
    assert _epochs_kept(node) == kept + 1, "a clean stop vouches all the same"


def _epochs_kept(node: ClusterNode) -> int:
    """How many of its starts have told that nothing is lost."""
    assert isinstance(node, ProcessNode)
    return len(NOTHING_LOST.findall(node.process.output()))


def _partitions(admin: AdminClient) -> list[confluent_kafka.admin.PartitionMetadata]:
    return list(admin.list_topics(TOPIC, timeout=PATIENCE_S).topics[TOPIC].partitions.values())


def _produce(cluster: RunningCluster) -> None:
    failures: list[confluent_kafka.KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "acks": "all",
            "on_delivery": lambda error, message: failures.append(error) if error else None,
            "log_level": 0,
        }
    )
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%d" % number, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    assert failures == []


def _read(node: ClusterNode) -> list[bytes | None]:
    """All that a consumer is given, once somebody leads."""
    consumer = Consumer(
        {"bootstrap.servers": node.bootstrap_server, "group.id": "reader", "enable.auto.commit": False, "log_level": 0}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[bytes | None] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < RECORDS and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(message.value())
    consumer.close()
    return found


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
