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
    """Until every partition has that many replicas in sync."""

    def sizes() -> list[int]:
        return [len(partition.isrs) for partition in partitions_of(cluster, topic).values()]

    until(sizes, lambda found: bool(found) and min(found) == replicas, f"{replicas} replicas in sync everywhere")


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
