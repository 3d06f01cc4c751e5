"""Partitions move between real processes at the rate they are allowed, and nobody else is slower for it (KIP-73)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from tests.integration.cluster_asking import ask, eventually

from odradek.client.admin.cluster import ConfigChange, ConfigOperation, ConfigResource, ResourceType
from odradek.client.admin.topics import NewTopic
from odradek.client.cluster import PartitionInfo, TopicPartition
from odradek.testing.cluster import RunningCluster, running_cluster

pytestmark = pytest.mark.alone

MB = 1_000_000
BROKERS = (1, 2, 3)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    """Followers fetch in small pieces, so that a small rate is kept closely."""
    properties = {"replica.fetch.max.bytes": "100000", "replica.fetch.response.max.bytes": "100000"}
    with running_cluster(brokers=3, properties=properties) as running:
        yield running


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_move_takes_its_size_by_the_rate_and_ends_when_it_is_let_go(cluster: RunningCluster, side: str) -> None:
    topic, free = f"moving-{side}", f"free-{side}"
    moving = TopicPartition(topic, 0)
    create(cluster, NewTopic(topic, assignments=((1,),)), NewTopic(free, assignments=((1, 2, 3),)))
    fill(cluster, topic, 5 * MB // 2)
    throttle(cluster, side, MB)
    list_replicas(cluster, topic, side, "*")
    started = time.monotonic()
    move(cluster, {moving: (2,)})
    delays = []
    while time.monotonic() - started < 1.0:
        before = time.monotonic()
        fill(cluster, free, 1_000)
        delays.append(time.monotonic() - before)
    assert moving in reassignments(cluster)
    assert len(delays) > 2  # acks=all elsewhere does not wait for it.
    eventually(lambda: moving not in reassignments(cluster), "the move has ended")
    assert time.monotonic() - started > 1.4  # 2.5 MB at 1 MB/s, but for the first window.
    assert described(cluster, topic).isr == (2,)
    throttle(cluster, side, None)


def test_a_move_that_stands_still_is_let_go_or_taken_back(cluster: RunningCluster) -> None:
    create(cluster, NewTopic("stuck", assignments=((1,), (1,))))
    first, second = TopicPartition("stuck", 0), TopicPartition("stuck", 1)
    fill(cluster, "stuck", MB)
    fill(cluster, "stuck", MB, partition=1)
    throttle(cluster, "follower", 1_000)
    list_replicas(cluster, "stuck", "follower", "0:2,1:3")
    move(cluster, {first: (2,), second: (3,)})
    assert {first, second} <= set(reassignments(cluster))
    move(cluster, {second: None})
    assert second not in reassignments(cluster)
    assert described(cluster, "stuck", 1).replicas == (1,)
    fill(cluster, "stuck", 1_000, partition=1)
    assert described(cluster, "stuck", 0).isr == (1,)
    throttle(cluster, "follower", 1 << 30)
    eventually(lambda: first not in reassignments(cluster), "the move has ended")
    assert described(cluster, "stuck", 0).isr == (2,)
    throttle(cluster, "follower", None)


def create(cluster: RunningCluster, *topics: NewTopic) -> None:
    assert not any(ask(cluster.nodes[1], lambda admin: admin.create_topics(topics)).values())


def fill(cluster: RunningCluster, topic: str, size: int, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0, "linger.ms": 0})
    for _ in range(max(size // 50_000, 1)):
        producer.produce(topic, bytes(min(size, 50_000)), partition=partition)
    assert producer.flush(30) == 0


def throttle(cluster: RunningCluster, side: str, rate: int | None) -> None:
    text = None if rate is None else str(rate)
    operation = ConfigOperation.DELETE if rate is None else ConfigOperation.SET
    change = ConfigChange(f"{side}.replication.throttled.rate", text, operation)
    changes = {ConfigResource(ResourceType.BROKER, str(broker)): [change] for broker in BROKERS}
    assert not any(ask(cluster.nodes[1], lambda admin: admin.alter_configs(changes)).values())


def list_replicas(cluster: RunningCluster, topic: str, side: str, replicas: str) -> None:
    change = ConfigChange(f"{side}.replication.throttled.replicas", replicas)
    changes = {ConfigResource(ResourceType.TOPIC, topic): [change]}
    assert not any(ask(cluster.nodes[1], lambda admin: admin.alter_configs(changes)).values())


def move(cluster: RunningCluster, targets: dict[TopicPartition, tuple[int, ...] | None]) -> None:
    assert not any(ask(cluster.nodes[1], lambda admin: admin.reassign_partitions(targets)).values())


def reassignments(cluster: RunningCluster) -> list[TopicPartition]:
    return list(ask(cluster.nodes[1], lambda admin: admin.list_reassignments()))


def described(cluster: RunningCluster, topic: str, partition: int = 0) -> PartitionInfo:
    found = {each.name: each for each in ask(cluster.nodes[1], lambda admin: admin.list_topics())}
    return found[topic].partitions[partition]
