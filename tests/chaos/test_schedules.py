"""Faults drawn from a seed, one after another and two at a time, on a cluster of five under load.

`make chaos SEED=7 COUNT=20` plays more of them.
"""

from __future__ import annotations

import os
import random

import pytest
from tests.chaos.load import Load
from tests.chaos.watching import wait_until_in_sync

from odradek.testing.cluster import ClusterNode, RunningCluster, running_cluster

FIRST_SEED = int(os.environ.get("ODRADEK_CHAOS_SEED", "1"))
SEEDS = range(FIRST_SEED, FIRST_SEED + int(os.environ.get("ODRADEK_CHAOS_COUNT", "1")))
FAULTS = 6
TOPIC = "ledger"
PROPERTIES = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "2000",
    "leader.imbalance.check.interval.seconds": "3",
}


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost(seed: int) -> None:
    draw = random.Random(seed)
    with running_cluster(brokers=5, properties=PROPERTIES) as cluster:
        load = Load(cluster.bootstrap_servers, TOPIC, partitions=6)
        load.create_topic(replication_factor=3)
        with load.running():
            for _ in range(FAULTS):
                load.wait_for_acknowledged(draw.randrange(50, 300))
                strike(cluster, load, draw)
            wait_until_in_sync(cluster, TOPIC)
            load.wait_for_acknowledged(300)
        assert load.verdict() == []


def strike(cluster: RunningCluster, load: Load, draw: random.Random) -> None:
    """One fault, and what undoes it; a majority of controllers is back before the next."""
    victims = draw.sample(list(cluster.nodes.values()), draw.choice((1, 1, 2)))
    kind = draw.choice(("kill", "kill", "stop", "pause", "everyone"))
    if kind == "everyone":
        for node in cluster.nodes.values():
            node.kill()
        cluster.start()
        return
    for node in victims:
        strike_one(node, kind)
    if draw.random() < 0.5 and len(victims) == 1:
        load.wait_for_acknowledged(draw.randrange(20, 200))
    elif kind == "pause":
        load.pass_time(draw.uniform(0.2, 3.0))
    for node in victims:
        if kind == "pause":
            node.resume()
        else:
            node.begin()
    for node in victims:
        if kind != "pause":
            node.wait_until_ready()


def strike_one(node: ClusterNode, kind: str) -> None:
    match kind:
        case "kill":
            node.kill()
        case "stop":
            node.stop()
        case _:
            node.pause()
