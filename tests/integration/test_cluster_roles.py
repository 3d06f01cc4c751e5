"""Three controllers and two brokers: processes that are one thing only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bench import wire
from tests.integration.cluster_asking import active_controller, ask, create_topic, eventually, topics

from odradek.protocol.api import ApiKey
from odradek.testing.cluster import RunningCluster, running_cluster

CONTROLLERS = [101, 102, 103]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=2, controllers=3) as running:
        yield running


def test_brokers_observe_and_controllers_vote(cluster: RunningCluster) -> None:
    partition, response = ask(cluster.brokers[0], lambda admin: admin.describe_quorum())
    assert sorted(each.replica_id for each in partition.current_voters) == CONTROLLERS
    assert sorted(each.replica_id for each in partition.observers) == [1, 2]
    eventually(
        lambda: (
            sorted(node.node_id for node in ask(cluster.brokers[0], lambda admin: admin.describe_quorum())[1].nodes)
            == CONTROLLERS
        ),
        "all controllers have registered",
    )
    assert partition.leader_id in CONTROLLERS
    assert response.error_code == 0


def test_only_brokers_are_in_the_cluster_that_clients_see(cluster: RunningCluster) -> None:
    described = ask(cluster.brokers[1], lambda admin: admin.describe_cluster())
    assert sorted(broker.broker_id for broker in described.brokers) == [1, 2]
    create_topic(cluster.brokers[0], "spread", partitions=4)
    listed = ask(cluster.brokers[0], lambda admin: admin.describe_topics(["spread"]))["spread"]
    assert {partition.leader for partition in listed.partitions} == {1, 2}  # type: ignore[union-attr]


def test_a_controllers_listener_serves_no_clients(cluster: RunningCluster) -> None:
    with wire.Connection(cluster.nodes[101].controller_port) as connection:
        reader = connection.request(ApiKey.API_VERSIONS, 0, b"")
        assert reader.int16() == 0
        served = []
        for _ in range(reader.int32()):
            served.append(reader.int16())
            reader.int16()
            reader.int16()
    assert ApiKey.METADATA not in served
    assert ApiKey.PRODUCE not in served
    assert {ApiKey.VOTE, ApiKey.FETCH, ApiKey.ENVELOPE, ApiKey.BROKER_HEARTBEAT} <= set(served)


def test_controllers_may_be_killed_one_after_the_other(cluster: RunningCluster) -> None:
    for number in range(3):
        active = active_controller(cluster.brokers[0])
        cluster.nodes[active].kill()
        took_s = create_topic(cluster.brokers[number % 2], f"without-{number}")
        assert took_s < 8, f"{took_s:.2f} s"
        cluster.nodes[active].start()
    for node in cluster.brokers:
        eventually(
            lambda node=node: {"without-0", "without-1", "without-2"} <= set(topics(node)), f"{node} knows all topics"
        )


def test_without_a_majority_nothing_changes_and_what_is_there_is_served(cluster: RunningCluster) -> None:
    create_topic(cluster.brokers[0], "kept")
    lost = CONTROLLERS[:2]
    for node_id in lost:
        cluster.nodes[node_id].kill()
    assert "kept" in topics(cluster.brokers[0])
    for node_id in lost:
        cluster.nodes[node_id].start()
    create_topic(cluster.brokers[1], "with-a-majority-again")


def test_a_broker_that_died_is_fenced_long_before_its_session_ends(cluster: RunningCluster) -> None:
    dead, alive = cluster.brokers
    dead.kill()
    eventually(
        lambda: (
            [each.broker_id for each in ask(alive, lambda admin: admin.describe_cluster()).brokers] == [alive.node_id]
        ),
        "the dead broker is not in the cluster any more",
    )
    dead.start()
    assert sorted(each.broker_id for each in ask(alive, lambda admin: admin.describe_cluster()).brokers) == [1, 2]
