"""The coordinator of a group is killed: another node takes over from the log, and no committed offset is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.chaos.load import Load
from tests.chaos.watching import until

from odradek.testing.cluster import ClusterNode, RunningCluster, running_cluster

GROUP = "readers"
TOPIC = "ledger"
PARTITIONS = 4
PATIENCE_S = 60.0


class Member(threading.Thread):
    """Reads, commits what it has read, and remembers what it was told is committed."""

    def __init__(self, bootstrap_servers: str, protocol: str, committed: dict[int, int]) -> None:
        super().__init__(daemon=True)
        settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": GROUP,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        if protocol == "classic":
            settings["session.timeout.ms"] = 6000
        self._consumer = Consumer(settings)
        self._committed = committed
        self.stopping = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._consumer.subscribe([TOPIC])
            while not self.stopping.is_set():
                if any(message.error() is None for message in self._consumer.consume(100, timeout=0.2)):
                    self._commit()
            self._consumer.close()
        except BaseException as failure:  # noqa: BLE001 - told to the test
            self.failure = failure

    def _commit(self) -> None:
        try:
            told = self._consumer.commit(asynchronous=False) or []
        except confluent_kafka.KafkaException:
            return  # Nobody was told anything: the group is being rebalanced, or its coordinator is away.
        for position in told:
            if position.error is None:
                known = self._committed.get(position.partition, 0)
                self._committed[position.partition] = max(known, position.offset)


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(properties={"offsets.topic.num.partitions": "4"}) as running:
        yield running


def coordinator_of(cluster: RunningCluster) -> ClusterNode:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})

    def found() -> int:
        try:
            described = admin.describe_consumer_groups([GROUP])[GROUP].result(PATIENCE_S)
        except confluent_kafka.KafkaException:
            return -1
        return -1 if described.coordinator is None else int(described.coordinator.id)

    return cluster.nodes[until(found, lambda node_id: node_id in cluster.nodes, "the group has a coordinator")]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_outlive_their_coordinator(cluster: RunningCluster, protocol: str) -> None:
    load = Load(cluster.bootstrap_servers, TOPIC, partitions=PARTITIONS)
    load.create_topic()
    committed: dict[int, int] = {}
    members = [Member(cluster.bootstrap_servers, protocol, committed) for _ in range(2)]
    for member in members:
        member.start()
    with load.running():
        until(lambda: len(committed), lambda partitions: partitions == PARTITIONS, "every partition is committed")
        for _ in range(2):
            before = dict(committed)
            coordinator = coordinator_of(cluster)
            coordinator.kill()
            until(
                lambda before=before: sum(offset > before[index] for index, offset in committed.items()),
                lambda grown: grown == PARTITIONS,
                "the group goes on in every partition",
            )
            coordinator.start()
    for member in members:
        member.stopping.set()
    for member in members:
        member.join(PATIENCE_S)
        assert member.failure is None
    assert load.verdict() == []
    assert offsets_kept(cluster, committed)


def offsets_kept(cluster: RunningCluster, promised: dict[int, int]) -> bool:
    """Whether what members were told is committed is at least what the group says now."""
    asking = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": GROUP, "log_level": 0})
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            found = asking.committed([TopicPartition(TOPIC, index) for index in promised], timeout=10)
            break
        except confluent_kafka.KafkaException:
            assert time.monotonic() < deadline
    asking.close()
    return all(position.offset >= promised[position.partition] for position in found)
