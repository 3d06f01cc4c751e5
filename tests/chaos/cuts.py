"""Cuts in the network under load, inside of a network namespace of its own: `unshare --net python -m tests.chaos.cuts`.

Prints every broken promise, and ends with 1 if there is one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import confluent_kafka
from tests.chaos.load import Load
from tests.chaos.watching import leader_of, wait_until_forgotten, wait_until_in_sync

from odradek.testing.cluster import RunningCluster, running_cluster
from odradek.testing.namespaces import Archipelago, archipelago

TOPIC = "ledger"
WITNESS = "witness"
PATIENCE_S = 60.0
CUT_S = 4.0
"""Longer than the sessions below: whoever is cut off is fenced, and believes to lead for a while."""
PROPERTIES = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "2000",
}


def leader_isolated(cluster: RunningCluster, islands: Archipelago, load: Load) -> None:
    """It reaches no other node, but clients reach it: it must acknowledge nothing that its successor lacks."""
    leader = leader_of(cluster, TOPIC).node_id
    islands.isolate(leader)
    time.sleep(CUT_S)
    others_serve(cluster, leader)
    islands.rejoin(leader)


def leader_unheard(cluster: RunningCluster, islands: Archipelago, load: Load) -> None:
    """It hears the others and they do not hear it."""
    leader = leader_of(cluster, TOPIC).node_id
    others = [node_id for node_id in cluster.nodes if node_id != leader]
    for other in others:
        islands.cut(leader, other)
    time.sleep(CUT_S)
    others_serve(cluster, leader)
    for other in others:
        islands.heal(leader, other)


def two_apart(cluster: RunningCluster, islands: Archipelago, load: Load) -> None:
    """Two nodes do not reach each other, and both reach the third."""
    leader = leader_of(cluster, TOPIC).node_id
    other = next(node_id for node_id in cluster.nodes if node_id != leader)
    islands.cut(leader, other)
    islands.cut(other, leader)
    time.sleep(CUT_S)
    load.wait_for_acknowledged(200)
    islands.heal(leader, other)
    islands.heal(other, leader)


def newcomers_behind_the_cut(cluster: RunningCluster, islands: Archipelago, load: Load) -> None:
    """Producers whose first batches go to a leader that can tell nobody of them, and then is none any more."""
    leader = leader_of(cluster, WITNESS)
    islands.isolate(leader.node_id)
    newcomers = Load(leader.bootstrap_server, WITNESS, partitions=3)
    with newcomers.running():
        wait_until_forgotten(cluster, leader.node_id)
        islands.rejoin(leader.node_id)
        newcomers.wait_for_acknowledged_everywhere(100)
    wait_until_in_sync(cluster, WITNESS)  # Until then the leader that was cut off may tell of its own end, as in Kafka.
    broken = newcomers.verdict()
    assert not broken, broken


def others_serve(cluster: RunningCluster, cut_off: int) -> None:
    """A client that asks the others writes with acks=all, whoever led before.

    One that asks the node which was cut off may be told, and believe, that it still leads, as with Kafka: so this one
    comes when the others do not name it any more.
    """
    wait_until_forgotten(cluster, cut_off)
    servers = ",".join(node.bootstrap_server for node in cluster.brokers if node.node_id != cut_off)
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})
    written: list[object] = []
    for number in range(50):
        producer.produce(WITNESS, str(number), on_delivery=lambda error, _: written.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert written == [None] * 50


STORIES: dict[str, Callable[[RunningCluster, Archipelago, Load], None]] = {
    "leader-isolated": leader_isolated,
    "leader-unheard": leader_unheard,
    "two-apart": two_apart,
    "newcomers": newcomers_behind_the_cut,
}


def main(names: list[str]) -> int:
    broken: list[str] = []
    with archipelago(3) as islands, running_cluster(properties=PROPERTIES, places=islands.places) as cluster:
        Load(cluster.bootstrap_servers, WITNESS, partitions=3).create_topic()
        for name in names or list(STORIES):
            load = Load(cluster.bootstrap_servers, TOPIC, partitions=3)
            load.create_topic()
            with load.running():
                load.wait_for_acknowledged(300)
                STORIES[name](cluster, islands, load)
                load.wait_for_acknowledged(300)
                wait_until_in_sync(cluster, TOPIC)
            broken += [f"{name}: {line}" for line in load.verdict()]
            load.delete_topic()
    print("\n".join(broken) or "every promise held")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
