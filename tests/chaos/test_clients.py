"""The same faults under clients with other settings and of other make."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.chaos import writers
from tests.chaos.load import ORDER, Load
from tests.chaos.test_schedules import PROPERTIES, strike
from tests.chaos.watching import leader_of, wait_until_in_sync

from odradek.sim import checkers
from odradek.testing.cluster import RunningCluster, running_cluster

TOPIC = "ledger"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    # aiokafka leaves sockets open whose connections failed.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

KINDS: dict[str, dict[str, Any]] = {
    "not-idempotent": {"settings": {"enable.idempotence": False, "acks": "all"}, "without": ORDER},
    "one-in-flight": {"settings": {"max.in.flight.requests.per.connection": 1}},
    "gzip": {"settings": {"compression.type": "gzip", "linger.ms": 20}},
    "lz4": {"settings": {"compression.type": "lz4", "linger.ms": 20}},
    "snappy": {"settings": {"compression.type": "snappy", "linger.ms": 20}},
    "zstd": {"settings": {"compression.type": "zstd", "linger.ms": 20}},
    "large-records": {"record_bytes": 30_000, "producers": 1},
    "many-partitions": {"partitions": 200, "producers": 1, "pause_s": 0.1},
    "kafka-python": {"writers": [writers.kafka_python] * 2},
    "aiokafka": {"writers": [writers.aio_kafka] * 2},
}


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(properties=PROPERTIES) as running:
        yield running


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost(cluster: RunningCluster, kind: str) -> None:
    """Leaders are killed one after the other, and then whatever is drawn."""
    load = Load(cluster.bootstrap_servers, TOPIC, **{"partitions": 6, **KINDS[kind]})
    load.create_topic()
    draw = random.Random(kind)
    with load.running():
        for index in range(2):
            load.wait_for_acknowledged_everywhere(10)
            kill_the_leader(cluster, load, index)
        for _ in range(3):
            load.wait_for_acknowledged_everywhere(10)
            strike(cluster, load, draw)
        wait_until_in_sync(cluster, TOPIC)
        load.wait_for_acknowledged_everywhere(10)
    assert load.verdict() == []


@pytest.mark.java
def test_nothing_is_lost_by_kafkas_own_producer(cluster: RunningCluster, tmp_path: Path) -> None:
    """Its records do not say which producer's they are, so that nobody looks at their order."""
    java = functools.partial(writers.java, directory=tmp_path)
    load = Load(cluster.bootstrap_servers, TOPIC, partitions=6, writers=[java], without=ORDER)
    load.create_topic()
    with load.running():
        for index in range(3):
            load.wait_for_acknowledged(500)
            leader = leader_of(cluster, TOPIC, index)
            leader.kill()
            load.wait_for_acknowledged(500)
            leader.start()
            wait_until_in_sync(cluster, TOPIC)
        load.wait_for_acknowledged(500)
    assert load.verdict() == []


def test_one_replica_is_enough_for_acks_1_and_nobody_lies(cluster: RunningCluster) -> None:
    """What only the leader had may be lost with it. All else holds, also that what was read stays."""
    without = (*ORDER, checkers.acknowledged_kept.check, checkers.same_record.check)
    settings = {"enable.idempotence": False, "acks": 1}
    load = Load(cluster.bootstrap_servers, TOPIC, partitions=6, settings=settings, without=without)
    load.create_topic()
    with load.running():
        for index in range(3):
            load.wait_for_acknowledged_everywhere(10)
            kill_the_leader(cluster, load, index)
        wait_until_in_sync(cluster, TOPIC)
        load.wait_for_acknowledged_everywhere(10)
    assert load.verdict() == []


def kill_the_leader(cluster: RunningCluster, load: Load, index: int) -> None:
    leader = leader_of(cluster, TOPIC, index)
    leader.kill()
    load.wait_for_acknowledged_everywhere(10)
    leader.start()
    wait_until_in_sync(cluster, TOPIC)
