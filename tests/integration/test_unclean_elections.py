"""A replica that was not in sync leads where that is allowed, and nowhere else; who led before gives up what it had."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from confluent_kafka import Producer
from tests.integration.cluster_asking import ask, eventually

from odradek.client.admin.cluster import ConfigChange, ConfigOperation, ConfigResource, ResourceType
from odradek.client.admin.topics import Election, NewTopic
from odradek.client.cluster import PartitionInfo, TopicPartition
from odradek.testing.cluster import ClusterNode, RunningCluster, running_cluster

INTERVAL_MS = 200
FIRST, SECOND = 1, 2
ALLOWED = "unclean.leader.election.enable"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    """Two brokers that can be killed as one likes; looked at often for partitions that nobody leads."""
    properties = {"unclean.leader.election.interval.ms": str(INTERVAL_MS)}
    with running_cluster(brokers=2, controllers=1, properties=properties) as running:
        yield running


def by_topic(node: ClusterNode, topic: str) -> None:
    _alter(node, ConfigResource(ResourceType.TOPIC, topic), ConfigChange(ALLOWED, "true"))


def by_brokers(node: ClusterNode, topic: str) -> None:
    _alter(node, ConfigResource(ResourceType.BROKER, ""), ConfigChange(ALLOWED, "true"))


def on_demand(node: ClusterNode, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    assert ask(node, lambda admin: admin.elect_leaders(Election.UNCLEAN, [partition])) == {partition: None}


@pytest.mark.parametrize("allow", [by_topic, by_brokers, on_demand])
def test_nobody_leads_until_it_is_allowed(cluster: RunningCluster, allow: Callable[[ClusterNode, str], None]) -> None:
    topic = allow.__name__.replace("_", "-")
    first, second = cluster.nodes[FIRST], cluster.nodes[SECOND]
    new = NewTopic(topic, assignments=((FIRST, SECOND),), configs=(("min.insync.replicas", "1"),))
    assert ask(first, lambda admin: admin.create_topics([new])) == {topic: None}
    _produce(first, topic, b"on both")
    second.kill()
    eventually(lambda: _described(first, topic).isr == (FIRST,), "the second one is not in sync")
    _produce(first, topic, b"acknowledged by the first alone")
    first.kill()
    second.start()
    eventually(lambda: _brokers(second) == [SECOND], "the first one is gone")
    looked_at = time.monotonic() + 3 * INTERVAL_MS / 1000
    while time.monotonic() < looked_at:
        assert _described(second, topic).leader == -1
    allow(second, topic)
    eventually(lambda: _described(second, topic).leader == SECOND, "the second one leads")
    _produce(second, topic, b"written since")
    first.start()
    eventually(lambda: _described(second, topic).isr == (SECOND, FIRST), "the first one is in sync again")
    logs = [node.data_directory / f"{topic}-0" / "00000000000000000000.log" for node in (first, second)]
    held = logs[0].read_bytes()
    assert held == logs[1].read_bytes()
    assert [text in held for text in (b"on both", b"written since", b"first alone")] == [True, True, False]
    _alter(
        second, ConfigResource(ResourceType.BROKER, ""), ConfigChange(ALLOWED, None, operation=ConfigOperation.DELETE)
    )


def _brokers(node: ClusterNode) -> list[int]:
    return sorted(each.broker_id for each in ask(node, lambda admin: admin.describe_cluster()).brokers)


def _alter(node: ClusterNode, resource: ConfigResource, change: ConfigChange) -> None:
    assert ask(node, lambda admin: admin.alter_configs({resource: [change]})) == {resource: None}


def _described(node: ClusterNode, topic: str) -> PartitionInfo:
    found = ask(node, lambda admin: admin.describe_topics([topic]))[topic]
    assert not isinstance(found, Exception)
    return found.partitions[0]


def _produce(node: ClusterNode, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap_server, "acks": "all", "log_level": 0})
    outcomes: list[confluent_kafka.KafkaError | None] = []
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(30)
    assert outcomes == [None]
