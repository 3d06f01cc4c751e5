"""Who cannot be reached leads on, and whose process was killed is replaced at once: real processes, real sockets."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.cluster_asking import active_controller, ask, eventually

from odradek.testing.cluster import ClusterNode, RunningCluster, running_cluster
from odradek.testing.ports import HOST, free_port

PATIENCE_S = 60.0
SESSION_S = 6.0
PROPERTIES = {"broker.session.timeout.ms": str(int(SESSION_S * 1000)), "broker.heartbeat.interval.ms": "1000"}


@contextmanager
def cluster_with(
    directory: pathlib.Path, *, advertised: dict[int, str], controllers: int, brokers: int = 3
) -> Iterator[RunningCluster]:
    """Brokers that say they are elsewhere."""
    cluster = RunningCluster(
        str(directory),
        brokers=brokers,
        controllers=controllers,
        in_process=False,
        properties=PROPERTIES,
        log_dirs=1,
        places=(),
    )
    for node_id, place in advertised.items():
        file = cluster.nodes[node_id].properties_file
        file.write_text(f"{file.read_text(encoding='utf-8')}\nadvertised.listeners=PLAINTEXT://{place}\n", "utf-8")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def create_topic(cluster: RunningCluster, node: ClusterNode, *, brokers: list[int]) -> None:
    """`t`, with one partition on these."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap_server, "log_level": 0})
    eventually(lambda: len(admin.list_topics(timeout=PATIENCE_S).brokers) == len(cluster.brokers), "all are unfenced")
    admin.create_topics([NewTopic("t", 1, replica_assignment=[brokers])])["t"].result(PATIENCE_S)


def standing(node: ClusterNode) -> tuple[int, int]:
    """Leader and leader epoch of the partition, as that broker knows them."""
    topic = ask(node, lambda admin: admin.describe_topics(["t"]))["t"]
    (partition,) = topic.partitions  # type: ignore[union-attr]
    return partition.leader, partition.leader_epoch


def test_a_broker_whose_address_refuses_the_controllers_leads_on_at_every_change_of_them(
    tmp_path: pathlib.Path,
) -> None:
    """As behind a translation of addresses that is meant for others: its heartbeats come from inside."""
    with cluster_with(tmp_path, advertised={1: f"{HOST}:{free_port()}"}, controllers=3, brokers=2) as cluster:
        other = cluster.nodes[2]
        create_topic(cluster, other, brokers=[1])
        assert standing(other) == (1, 0)
        for _ in range(3):
            active = active_controller(other)
            cluster.nodes[active].kill()
            eventually(lambda active=active: active_controller(other) not in (active, -1), "another controller")
            until = time.monotonic() + 2  # What is looked for is that nothing happens.
            while time.monotonic() < until:
                assert standing(other) == (1, 0)
            cluster.nodes[active].start()
        output = "".join(node.process.output() for node in cluster.nodes.values())  # type: ignore[attr-defined]
        assert "Fenced broker" not in output


@pytest.mark.parametrize("controllers", [0, 1], ids=["combined", "apart"])
def test_a_killed_broker_is_replaced_long_before_its_session_ends(tmp_path: pathlib.Path, controllers: int) -> None:
    """In a combined cluster it is the active controller as well: its connection to the next one tells of its end."""
    with cluster_with(tmp_path, advertised={}, controllers=controllers) as cluster:
        doomed = active_controller(cluster.brokers[0]) if not controllers else 1
        others = [node for node in cluster.brokers if node.node_id != doomed]
        create_topic(cluster, others[0], brokers=[doomed, *(node.node_id for node in others)])
        eventually(lambda: standing(others[0])[0] == doomed, "the partition is led")
        killed = time.monotonic()
        cluster.nodes[doomed].kill()
        eventually(lambda: standing(others[0])[0] != doomed, "another leads")
        assert time.monotonic() - killed < SESSION_S / 2


def test_with_the_switch_off_a_killed_broker_has_its_session(tmp_path: pathlib.Path) -> None:
    properties = PROPERTIES | {"odradek.early.fencing.enable": "false"}
    with running_cluster(brokers=2, controllers=1, properties=properties, data_directory=str(tmp_path)) as cluster:
        create_topic(cluster, cluster.nodes[2], brokers=[1, 2])
        killed = time.monotonic()
        cluster.nodes[1].kill()
        eventually(lambda: standing(cluster.nodes[2])[0] == 2, "the other leads")
        assert time.monotonic() - killed > SESSION_S - 1.5
