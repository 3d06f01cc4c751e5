"""Nodes that do not belong, or cannot get in: they say why, and the cluster goes on."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cluster_asking import ask, create_topic, eventually

from odradek.configdef import format_properties, parse_properties
from odradek.testing.cluster import RunningCluster, running_cluster
from odradek.testing.process import NodeProcess


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=1, controllers=1) as running:
        yield running


@pytest.fixture
def process() -> Iterator[NodeProcess]:
    made = NodeProcess("the newcomer")
    yield made
    made.kill()
    made.close()


def newcomer(cluster: RunningCluster, directory: Path, **changes: str) -> Path:
    """A file like the broker's own, with other ports and data."""
    properties = parse_properties(cluster.nodes[1].properties_file.read_text())
    properties |= {"log.dirs": str(directory / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
    properties |= {key.replace("_", "."): text for key, text in changes.items()}
    file = directory / "server.properties"
    file.write_text(format_properties(properties))
    return file


def give_directories(directory: Path, *, cluster_id: str, node_id: int) -> None:
    data = directory / "data"
    data.mkdir()
    (data / "meta.properties").write_text(f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\n")


def test_an_id_that_is_taken_is_refused_and_the_first_goes_on(
    cluster: RunningCluster, process: NodeProcess, tmp_path: Path
) -> None:
    give_directories(tmp_path, cluster_id=cluster.cluster_id, node_id=1)
    process.begin([str(newcomer(cluster, tmp_path, initial_broker_registration_timeout_ms="3000"))])
    assert process.wait_until_ended(30) == 1
    assert "every node needs an id of its own" in process.output()
    assert "DUPLICATE_BROKER_REGISTRATION" in process.output()
    assert "Traceback" not in process.output()
    create_topic(cluster.nodes[1], "after-duplicate")
    assert [each.port for each in ask(cluster.nodes[1], lambda admin: admin.describe_cluster()).brokers] == [
        cluster.nodes[1].port
    ]


def test_a_node_of_another_cluster_is_refused(cluster: RunningCluster, process: NodeProcess, tmp_path: Path) -> None:
    give_directories(tmp_path, cluster_id="AAAAAAAAAAAAAAAAAAAAAA", node_id=7)
    process.begin([str(newcomer(cluster, tmp_path, node_id="7"))])
    assert process.wait_until_ended(30) == 1, "long before its registration would time out"
    assert "belong to cluster AAAAAAAAAAAAAAAAAAAAAA" in process.output()
    assert "INCONSISTENT_CLUSTER_ID" in process.output()
    assert "Traceback" not in process.output()
    create_topic(cluster.nodes[1], "after-stranger")


def test_a_controller_that_cannot_be_reached_is_named(
    process: NodeProcess, cluster: RunningCluster, tmp_path: Path
) -> None:
    give_directories(tmp_path, cluster_id=cluster.cluster_id, node_id=8)
    nowhere = {"controller_quorum_voters": "101@127.0.0.1:9", "initial_broker_registration_timeout_ms": "1500"}
    process.begin([str(newcomer(cluster, tmp_path, node_id="8", **nowhere))])
    assert process.wait_until_ended(30) == 1
    assert "Could not register with the controller within 1500 ms" in process.output()
    assert "Traceback" not in process.output()


def test_a_node_that_waits_for_a_controller_stops_when_told(
    process: NodeProcess, cluster: RunningCluster, tmp_path: Path
) -> None:
    give_directories(tmp_path, cluster_id=cluster.cluster_id, node_id=8)
    file = newcomer(cluster, tmp_path, node_id="8", controller_quorum_voters="101@127.0.0.1:9")
    process.begin([str(file)])
    eventually(lambda: "Cannot fetch the metadata log" in process.output(), "it looks for a controller")
    started = time.monotonic()
    process.stop()
    assert time.monotonic() - started < 10
    assert "Stopped before the node was ready" in process.output()


def test_directories_that_nobody_formatted_are_not_made_a_cluster_of_their_own(
    process: NodeProcess, cluster: RunningCluster, tmp_path: Path
) -> None:
    process.begin([str(newcomer(cluster, tmp_path, node_id="9"))])
    assert process.wait_until_ended(30) == 1
    assert "No `meta.properties` found" in process.output()
    assert not (tmp_path / "data" / "meta.properties").exists()


def test_a_voter_that_is_alone_of_three_waits_for_another(tmp_path: Path) -> None:
    with running_cluster(brokers=3, data_directory=str(tmp_path)) as three:
        create_topic(three.brokers[0], "agreed")
        for node in three.nodes.values():
            node.kill()
        lives = three.nodes[1].process.output().count(" ready: ")
        three.nodes[1].begin()
        time.sleep(3)
        assert three.nodes[1].running
        assert three.nodes[1].process.output().count(" ready: ") <= lives
        three.nodes[2].begin()
        three.nodes[1].process.wait_until_ready()
        three.nodes[2].process.wait_until_ready()
        create_topic(three.brokers[1], "agreed-again")


def test_a_voter_that_lost_its_disk_gets_everything_back(tmp_path: Path) -> None:
    with running_cluster(brokers=3, data_directory=str(tmp_path)) as three:
        create_topic(three.brokers[0], "kept")
        lost = three.nodes[3]
        lost.kill()
        shutil.rmtree(lost.data_directory)
        three.format(lost)
        lost.start()
        described = ask(lost, lambda admin: admin.describe_topics(["kept"]))
        assert described["kept"].name == "kept"  # type: ignore[union-attr]
