"""Apache Kafka's tools that move partitions and leaders, as they come, against three nodes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.apache_kafka import tool
from bench.clusters import Cluster
from tests.compat.brokers import new_cluster
from tests.compat.patience import eventually

pytestmark = [pytest.mark.compat, pytest.mark.java]

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
TOPIC = "wandering"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, each broker and controller, and a topic on the first two."""
    with new_cluster(tmp_path_factory.mktemp("leaders")) as running:
        tool(
            TOPICS, "--bootstrap-server", running.bootstrap, "--create", "--topic", TOPIC, "--replica-assignment", "1:2"
        )
        yield running


def described(cluster: Cluster) -> tuple[str, str]:
    """Leader and replicas of the partition."""
    said = tool(TOPICS, "--bootstrap-server", cluster.servers[0].bootstrap, "--describe", "--topic", TOPIC)
    found = re.search(r"Partition: 0\s+Leader: (\S+)\s+Replicas: (\S+)", said)
    assert found is not None, said
    return found.group(1), found.group(2)


def reassign(cluster: Cluster, place: Path, replicas: list[int], *options: str) -> str:
    plan = {"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "replicas": replicas}]}
    file = place / "plan.json"
    file.write_text(json.dumps(plan))
    address = ("--bootstrap-server", cluster.servers[0].bootstrap)
    return tool(REASSIGN, *address, "--reassignment-json-file", file, *options, check=False)


def test_partitions_and_leaders_move(cluster: Cluster, tmp_path: Path) -> None:
    started = reassign(cluster, tmp_path, [3, 1], "--execute", "--throttle", "10000000")
    assert f"Successfully started partition reassignment for {TOPIC}-0" in started
    eventually(
        lambda: f"Reassignment of partition {TOPIC}-0 is completed" in reassign(cluster, tmp_path, [3, 1], "--verify"),
        True,
        timeout_s=60,
    )
    assert "No partition reassignments found" in tool(REASSIGN, "--bootstrap-server", cluster.bootstrap, "--list")
    assert described(cluster) == ("1", "3,1")
    everywhere = ("--bootstrap-server", cluster.bootstrap, "--election-type", "preferred", "--all-topic-partitions")
    assert f"Successfully completed leader election (PREFERRED) for partitions {TOPIC}-0" in tool(ELECT, *everywhere)
    eventually(lambda: described(cluster), ("3", "3,1"))
    one = ("--election-type", "preferred", "--topic", TOPIC, "--partition", "0")
    assert "Valid replica already elected" in tool(ELECT, "--bootstrap-server", cluster.bootstrap, *one)


def test_a_node_is_forgotten(cluster: Cluster) -> None:
    gone = next(node for node in (2, 3) if node != cluster.controller())
    cluster.server(gone).stop()
    address = ("--bootstrap-server", cluster.servers[0].bootstrap)
    assert f"Broker {gone} is no longer registered" in tool(CLUSTER, "unregister", *address, "--id", gone)

    def known() -> list[str]:
        return re.findall(r"^(\d)\s", tool(CLUSTER, "list-endpoints", *address, "--include-fenced-brokers"), re.M)

    eventually(known, sorted(map(str, (1, 5 - gone))))
