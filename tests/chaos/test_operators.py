"""What operators do to a cluster under load, drawn from a seed, with kills between their steps.

The clients are librdkafka's, kafka-python's and, where there is one, Kafka's own; the simulator's checkers judge what
they saw. `make chaos SEED=7 COUNT=20` plays more seeds.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tests.chaos import writers
from tests.chaos.load import ORDER, Load
from tests.chaos.test_schedules import PROPERTIES, SEEDS, strike
from tests.chaos.watching import until, wait_until_in_sync
from tests.integration.cluster_asking import ask
from tests.integration.test_operators import log_dirs
from tests.leftovers import QUIET, forget_sockets

from odradek.client.admin import Admin
from odradek.client.admin.topics import Election
from odradek.client.cluster import TopicPartition
from odradek.client.errors import ClientError
from odradek.protocol.errors import KafkaError
from odradek.testing.cluster import ClusterNode, RunningCluster, running_cluster
from odradek.testing.process import NodeFailed

# kafka-python leaves sockets open whose connections failed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

TOPIC = "ledger"
BESIDE = "comes-and-goes"
PARTITIONS = 4
REPLICAS = 3
STEPS = 9
PATIENCE_S = 60.0


@pytest.fixture
def cluster(caplog: pytest.LogCaptureFixture) -> Iterator[RunningCluster]:
    caplog.set_level(logging.CRITICAL, logger=QUIET)
    with running_cluster(brokers=4, log_dirs=2, properties=PROPERTIES) as running:
        yield running
    forget_sockets()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_whatever_operators_do(cluster: RunningCluster, seed: int) -> None:
    load = Load(cluster.bootstrap_servers, TOPIC, partitions=PARTITIONS, writers=[Load._produce, writers.kafka_python])
    play(cluster, load, random.Random(f"operators {seed}"))


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_is_lost_by_kafkas_own_producer(cluster: RunningCluster, tmp_path: Path) -> None:
    java = functools.partial(writers.java, directory=tmp_path)
    load = Load(cluster.bootstrap_servers, TOPIC, partitions=PARTITIONS, writers=[java], without=ORDER)
    play(cluster, load, random.Random("operators beside Java"))


def play(cluster: RunningCluster, load: Load, draw: random.Random) -> None:
    load.create_topic(replication_factor=REPLICAS)
    operator = Operator(cluster, load, draw)
    with load.running():
        for step in draw.sample(operator.steps, len(operator.steps)) + draw.choices(operator.steps, k=STEPS):
            load.wait_for_acknowledged(draw.randrange(20, 100))
            step()
            if draw.random() < 0.4:
                strike(cluster, load, draw)
        operator.configure("min.insync.replicas", "2")
        wait_until_in_sync(cluster, TOPIC)
        load.wait_for_acknowledged(100)
    assert load.verdict() == []
    operator.check_beside()


class Operator:
    """Takes one step at a time; what the cluster could not do just now is left, as an operator would."""

    def __init__(self, cluster: RunningCluster, load: Load, draw: random.Random) -> None:
        self._cluster = cluster
        self._load = load
        self._draw = draw
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        self._beside: list[bytes] | None = None
        """What must be in the topic that comes and goes; None before it came."""
        self.steps: list[Callable[[], None]] = [
            self._move,
            self._redirect,
            self._trim,
            self._elect,
            self._set_min_insync,
            self._recreate,
            self._recreate,
            self._reorder_directories,
            self._lose_directory,
        ]

    # The topic under load.

    def _move(self) -> None:
        index = self._draw.randrange(PARTITIONS)
        targets = self._draw.sample([node.node_id for node in self._cluster.brokers], REPLICAS)
        self._ask(lambda admin: admin.reassign_partitions({TopicPartition(TOPIC, index): targets}))

    def _redirect(self) -> None:
        """The first move is hardly over when the second comes."""
        self._move()
        self._move()

    def _trim(self) -> None:
        index = self._draw.randrange(PARTITIONS)
        before = self._draw.randrange(self._load.by_partition[index] // 2 + 1)
        with self._load.trimming(index, before), contextlib.suppress(KafkaException):
            (done,) = self._admin.delete_records([Place(TOPIC, index, before)]).values()
            done.result(PATIENCE_S)

    def _elect(self) -> None:
        partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        self._ask(lambda admin: admin.elect_leaders(Election.PREFERRED, partitions))

    def _set_min_insync(self) -> None:
        self.configure("min.insync.replicas", self._draw.choice("12"))

    def configure(self, name: str, text: str) -> None:
        entry = ConfigEntry(name, text, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])

        def configured() -> bool:
            self._admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
            return True

        until(configured, bool, f"{name} is {text}")

    def _ask(self, question: Callable[[Admin], object]) -> None:
        node = self._draw.choice([each for each in self._cluster.brokers if each.running])
        with contextlib.suppress(ClientError, KafkaError):
            ask(node, question)  # type: ignore[arg-type]

    # The topic that comes and goes.

    def _recreate(self) -> None:
        """Under the same name, after its records were trimmed; then everything may be killed."""
        self.check_beside()
        if self._beside is not None:
            (done,) = self._admin.delete_records([Place(BESIDE, 0, len(self._beside) // 2)]).values()
            with contextlib.suppress(KafkaException):
                done.result(PATIENCE_S)
        until(self._is_gone, bool, f"{BESIDE} is deleted")
        until(self._is_there, bool, f"{BESIDE} is created")
        self._beside = [b"%d" % number for number in range(self._draw.randrange(5, 40))]
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap_servers, "acks": "all", "log_level": 0})
        refused: list[object] = []
        for record in self._beside:
            producer.produce(
                BESIDE, record, partition=0, on_delivery=lambda why, _: refused.append(why) if why else None
            )
        assert producer.flush(PATIENCE_S) == 0
        assert refused == []
        if self._draw.random() < 0.7:
            for node in self._cluster.nodes.values():
                node.kill()
            self._cluster.start()

    def _is_gone(self) -> bool:
        if BESIDE not in self._admin.list_topics(timeout=10).topics:
            return True
        with contextlib.suppress(KafkaException):
            self._admin.delete_topics([BESIDE])[BESIDE].result(PATIENCE_S)
        return False

    def _is_there(self) -> bool:
        with contextlib.suppress(KafkaException):
            new = NewTopic(BESIDE, 1, REPLICAS, config={"min.insync.replicas": "2"})
            self._admin.create_topics([new])[BESIDE].result(PATIENCE_S)
        return BESIDE in self._admin.list_topics(timeout=10).topics

    def check_beside(self) -> None:
        """From where it begins to its end; half of it may have been trimmed."""
        if self._beside is None:
            return
        consumer = Consumer(
            {
                "bootstrap.servers": self._cluster.bootstrap_servers,
                "group.id": "looks",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        found: list[bytes | None] = []
        with contextlib.closing(consumer):
            consumer.assign([Place(BESIDE, 0, 0)])
            while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
                found.append(message.value())
        assert found == self._beside

    # Directories.

    def _reorder_directories(self) -> None:
        node = self._any_node()
        first, second = node.data_directories
        node.stop()
        with log_dirs(node, second, first), pytest.raises(NodeFailed, match="holds the metadata log"):
            node.start()
        node.start()

    def _lose_directory(self) -> None:
        """One replica of each partition at most, and all the others have everything."""
        wait_until_in_sync(self._cluster, TOPIC)
        if self._beside is not None:
            wait_until_in_sync(self._cluster, BESIDE)
        node = self._any_node()
        self._draw.choice((node.stop, node.kill))()
        shutil.rmtree(node.data_directories[1])
        node.data_directories[1].mkdir()
        self._cluster.format(node)
        node.start()
        wait_until_in_sync(self._cluster, TOPIC)

    def _any_node(self) -> ClusterNode:
        return self._draw.choice(self._cluster.brokers)
