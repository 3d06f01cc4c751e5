"""Three nodes, each broker and controller: they agree, any of them takes any request, and one may die or be held."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli import Cli
from tests.integration.cluster_asking import active_controller, ask, create_topic, eventually, topics

from odradek.client.admin.cluster import ConfigChange, ConfigResource, ResourceType
from odradek.testing.cluster import ClusterNode, RunningCluster, running_cluster

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=3) as running:
        yield running


def others(cluster: RunningCluster, node_id: int) -> list[ClusterNode]:
    return [node for node in cluster.brokers if node.node_id != node_id]


def test_every_broker_describes_the_same_cluster(cluster: RunningCluster) -> None:
    for node in cluster.brokers:
        described = ask(node, lambda admin: admin.describe_cluster())
        assert described.cluster_id == cluster.cluster_id
        assert {broker.broker_id: broker.port for broker in described.brokers} == {
            each.node_id: each.port for each in cluster.brokers
        }
        assert described.controller_id == node.node_id, "a broker forwards, so it may call itself the controller"


def test_a_topic_is_created_through_any_broker_and_known_there_at_once(cluster: RunningCluster) -> None:
    for node in cluster.brokers:
        create_topic(node, f"through-{node.node_id}", partitions=3)
        assert f"through-{node.node_id}" in topics(node)
    names = [f"through-{node.node_id}" for node in cluster.brokers]
    for node in cluster.brokers:
        eventually(lambda node=node: set(names) <= set(topics(node)), f"{node} knows all topics")
    described = ask(cluster.brokers[0], lambda admin: admin.list_topics())
    leaders = {partition.leader for topic in described if topic.name in names for partition in topic.partitions}
    assert leaders == {1, 2, 3}


def test_settings_are_changed_through_any_broker(cluster: RunningCluster) -> None:
    create_topic(cluster.brokers[0], "settings")
    topic = ConfigResource(ResourceType.TOPIC, "settings")
    for node in cluster.brokers:
        change = ConfigChange("retention.ms", str(1000 + node.node_id))
        outcomes = ask(node, lambda admin, change=change: admin.alter_configs({topic: [change]}))
        assert outcomes == {topic: None}
    own = ConfigResource(ResourceType.BROKER, "3")
    change = ConfigChange("log.retention.ms", "60000")
    assert ask(cluster.brokers[0], lambda admin: admin.alter_configs({own: [change]})) == {own: None}


def test_the_command_line_shows_the_quorum(cluster: RunningCluster, tmp_path: Path) -> None:
    cli = Cli(cluster.bootstrap_servers, tmp_path / "home")
    described = cli.json("quorum", "describe")
    assert described["leader"] in cluster.nodes
    assert sorted(each["id"] for each in described["voters"]) == [1, 2, 3]
    assert described["observers"] == []
    shown = cli.run("quorum", "describe")
    assert shown.rows[0] == ["Cluster", cluster.cluster_id], shown


def test_killing_the_active_controller_costs_less_than_a_second(cluster: RunningCluster) -> None:
    for number in range(2):
        active = active_controller(cluster.brokers[0])
        cluster.nodes[active].kill()
        survivor = others(cluster, active)[0]
        took_s = create_topic(survivor, f"after-kill-{number}")
        assert took_s < 5, f"{took_s:.2f} s"
        assert active_controller(survivor) != active
        cluster.nodes[active].start()
        assert f"after-kill-{number}" in topics(cluster.nodes[active])


def test_holding_the_active_controller_does_not_hold_the_cluster(cluster: RunningCluster) -> None:
    active = active_controller(cluster.brokers[0])
    cluster.nodes[active].pause()
    try:
        survivor = others(cluster, active)[0]
        took_s = create_topic(survivor, "while-held")
        assert took_s < 10, f"{took_s:.2f} s"
        assert active_controller(survivor) != active
    finally:
        cluster.nodes[active].resume()
    eventually(lambda: "while-held" in topics(cluster.nodes[active]), "the node that was held has caught up")


def test_a_node_that_stops_in_order_is_let_go_and_comes_back(cluster: RunningCluster) -> None:
    node = cluster.brokers[1]
    node.stop()
    survivor = others(cluster, node.node_id)[0]
    described = ask(survivor, lambda admin: admin.describe_cluster())
    assert node.node_id not in [broker.broker_id for broker in described.brokers]
    create_topic(survivor, "while-away")
    node.start()
    assert "while-away" in topics(node)


def test_all_stop_and_start_again_with_what_they_agreed_on(cluster: RunningCluster) -> None:
    before = topics(cluster.brokers[0])
    for node in cluster.nodes.values():
        node.stop()
    cluster.start()
    for node in cluster.brokers:
        assert topics(node) == before
