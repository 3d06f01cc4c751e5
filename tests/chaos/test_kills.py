"""Nodes are killed, held, restarted and emptied under load: nothing acknowledged is lost, reordered or doubled."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

import pytest
from tests.chaos.load import Load
from tests.chaos.watching import leader_of, wait_until_in_sync

from odradek.testing.cluster import RunningCluster, running_cluster

SESSION_TIMEOUT_MS = 3_000
TOPIC = "ledger"


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    properties = {
        "broker.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        "broker.heartbeat.interval.ms": "500",
        "replica.lag.time.max.ms": "3000",
    }
    with running_cluster(properties=properties) as running:
        yield running


@pytest.fixture
def load(cluster: RunningCluster) -> Load:
    load = Load(cluster.bootstrap_servers, TOPIC, partitions=3)
    load.create_topic()
    return load


def test_the_leader_is_killed(cluster: RunningCluster, load: Load) -> None:
    with load.running():
        for index in range(3):
            load.wait_for_acknowledged(300)
            leader = leader_of(cluster, TOPIC, index)
            leader.kill()
            load.wait_for_acknowledged(300)
            leader.start()
            wait_until_in_sync(cluster, TOPIC)
    assert load.verdict() == []


def test_every_node_is_killed_at_once(cluster: RunningCluster, load: Load) -> None:
    with load.running():
        for _ in range(2):
            load.wait_for_acknowledged(300)
            for node in cluster.nodes.values():
                node.kill()
            cluster.start()
            load.wait_for_acknowledged(300)
            wait_until_in_sync(cluster, TOPIC)
    assert load.verdict() == []


def test_a_leader_that_was_held_for_longer_than_its_session_is_a_zombie(cluster: RunningCluster, load: Load) -> None:
    with load.running():
        load.wait_for_acknowledged(300)
        held = leader_of(cluster, TOPIC)
        held.pause()
        time.sleep(SESSION_TIMEOUT_MS / 1000)  # The fault itself: how long it is held.
        load.wait_for_acknowledged(300)
        held.resume()
        load.wait_for_acknowledged(300)
        wait_until_in_sync(cluster, TOPIC)
    assert load.verdict() == []


def test_nodes_are_restarted_one_after_another(cluster: RunningCluster, load: Load) -> None:
    with load.running():
        for node in cluster.nodes.values():
            load.wait_for_acknowledged(300)
            node.stop()
            load.wait_for_acknowledged(300)
            node.start()
            wait_until_in_sync(cluster, TOPIC)
    assert load.verdict() == []


def test_a_node_returns_with_an_empty_disk(cluster: RunningCluster, load: Load) -> None:
    with load.running():
        load.wait_for_acknowledged(300)
        node = leader_of(cluster, TOPIC)
        node.kill()
        load.wait_for_acknowledged(300)
        shutil.rmtree(node.data_directory)
        cluster.format(node)
        node.start()
        wait_until_in_sync(cluster, TOPIC)
        load.wait_for_acknowledged(300)
    assert load.verdict() == []
