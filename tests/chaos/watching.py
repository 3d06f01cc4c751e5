"""How a cluster stands, asked from outside, and waiting until it stands well."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, PartitionMetadata

from odradek.testing.cluster import ClusterNode, RunningCluster

PATIENCE_S = 60.0
ResultT = TypeVar("ResultT")


def partitions_of(cluster: RunningCluster, topic: str) -> dict[int, PartitionMetadata]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "socket.timeout.ms": 5000, "log_level": 0})
    return dict(admin.list_topics(topic, timeout=10).topics[topic].partitions)


def leader_of(cluster: RunningCluster, topic: str, index: int = 0) -> ClusterNode:
    """Waits until there is one."""

    def leader() -> int:
        return partitions_of(cluster, topic)[index].leader

    return cluster.nodes[until(leader, lambda found: found in cluster.nodes, f"{topic}-{index} has a leader")]


def wait_until_in_sync(cluster: RunningCluster, topic: str, replicas: int = 3) -> None:
    """Until every partition has that many replicas in sync, and every broker says so.

    One that was cut off believes what it knew before for a while, and tells it whoever asks, as Kafka's brokers do.
    """

    def views() -> list[dict[int, tuple[int, list[int]]]]:
        return [_view(node, topic) for node in cluster.brokers]

    def agreed(found: list[dict[int, tuple[int, list[int]]]]) -> bool:
        first = found[0]
        whole = bool(first) and all(len(isr) == replicas for _, isr in first.values())
        return whole and all(view == first for view in found)

    until(views, agreed, f"{replicas} replicas in sync everywhere")


def wait_until_forgotten(cluster: RunningCluster, node_id: int) -> None:
    """Until none of the others names that node to clients: it is fenced, and has been for a while."""
    others = [node for node in cluster.brokers if node.node_id != node_id]

    def named() -> list[list[int]]:
        return [sorted(_ask(node).list_topics(timeout=10).brokers) for node in others]

    until(named, lambda found: all(node_id not in brokers for brokers in found), f"node {node_id} is forgotten")


def _ask(node: ClusterNode) -> AdminClient:
    return AdminClient({"bootstrap.servers": node.bootstrap_server, "socket.timeout.ms": 5000, "log_level": 0})


def _view(node: ClusterNode, topic: str) -> dict[int, tuple[int, list[int]]]:
    """Leader and ISR of each partition, as one broker knows them."""
    partitions = _ask(node).list_topics(topic, timeout=10).topics[topic].partitions
    return {index: (partition.leader, sorted(partition.isrs)) for index, partition in partitions.items()}


def until(look: Callable[[], ResultT], good: Callable[[ResultT], bool], what: str) -> ResultT:
    """Look again and again until it is good; a question that got no answer is asked again, too."""
    deadline = time.monotonic() + PATIENCE_S
    found: ResultT | None = None
    while time.monotonic() < deadline:
        with contextlib.suppress(KafkaException):
            found = look()
            if good(found):
                return found
        time.sleep(0.05)
    raise AssertionError(f"waited for: {what}; found {found!r}")
