"""Consume, transform, produce in transactions while coordinators and leaders are killed and a worker is held.

Whatever happens, readers of what is committed see each input once, in order: none lost, none doubled.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.chaos.watching import PATIENCE_S, leader_of, until, wait_until_in_sync

from odradek.testing.cluster import RunningCluster, running_cluster

ROOT = Path(__file__).parents[2]
SOURCE, TARGET, GROUP = "inputs", "outputs", "job"
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
PARTITIONS = 4
WORKERS = 3
CHUNK = 400
HELD_IN_TURN = 3
PROPERTIES = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


class Worker:
    """A process of `transformer.py`, and what it said."""

    def __init__(self, cluster: RunningCluster, number: int, *, held_in: int = -1) -> None:
        words = [cluster.bootstrap_servers, GROUP, f"worker-{number}", SOURCE, TARGET, str(held_in)]
        self.said: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.transformer", *words],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(line.rstrip())

    @property
    def is_held(self) -> bool:
        options = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, options) is not None

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)
        self._listener.join(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Job:
    """Inputs, and a reader of the outputs that are committed."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._common = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        admin = AdminClient(self._common)
        topics = [NewTopic(name, PARTITIONS, 3, config={"min.insync.replicas": "2"}) for name in (SOURCE, TARGET)]
        for created in admin.create_topics(topics).values():
            created.result(PATIENCE_S)
        self.fed: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.seen: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self._producer = confluent_kafka.Producer(self._common | {"enable.idempotence": True, "linger.ms": 2})
        self._consumer = confluent_kafka.Consumer(
            self._common | {"group.id": "unused", "isolation.level": "read_committed", "enable.auto.commit": False}
        )
        self._consumer.assign([confluent_kafka.TopicPartition(TARGET, index, 0) for index in range(PARTITIONS)])

    def feed(self, count: int = CHUNK) -> None:
        for number in range(count):
            index = number % PARTITIONS
            value = b"%d/%d" % (index, len(self.fed[index]))
            self.fed[index].append(value)
            self._producer.produce(SOURCE, value, partition=index)
        assert self._producer.flush(PATIENCE_S) == 0

    def see(self, timeout_s: float = 0.1) -> int:
        """How much is seen by now."""
        for message in self._consumer.consume(1_000, timeout_s):
            if message.error() is None:
                index, value = message.partition(), message.value()
                assert index is not None
                assert isinstance(value, bytes)
                self.seen[index].append(value)
        return sum(map(len, self.seen))

    def wait_for(self, wanted: int) -> None:
        until(self.see, lambda seen: seen >= wanted, f"{wanted} outputs are committed")

    def wait_for_all(self) -> None:
        self.wait_for(sum(map(len, self.fed)))

    def read_to_the_end(self) -> None:
        """Until no transaction is open, and all is read."""
        plain = confluent_kafka.Consumer(self._common | {"group.id": "unused", "isolation.level": "read_uncommitted"})
        partitions = [confluent_kafka.TopicPartition(TARGET, index) for index in range(PARTITIONS)]

        def ends(consumer: confluent_kafka.Consumer) -> list[int]:
            return [consumer.get_watermark_offsets(partition, PATIENCE_S)[1] for partition in partitions]

        until(lambda: ends(self._consumer), lambda stable: stable == ends(plain), "no transaction is open")
        plain.close()
        self._consumer.assign([confluent_kafka.TopicPartition(TARGET, index, 0) for index in range(PARTITIONS)])
        self.seen = [[] for _ in range(PARTITIONS)]
        self.wait_for_all()
        self.see(timeout_s=1.0)  # If there is more than there should be.

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(properties=PROPERTIES) as running:
        yield running


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    started: list[Worker] = []
    yield started
    for worker in started:
        worker.kill()


def test_nothing_is_lost_and_nothing_is_doubled(cluster: RunningCluster, workers: list[Worker]) -> None:
    job = Job(cluster)
    job.feed()
    held = Worker(cluster, 0, held_in=HELD_IN_TURN)
    workers.append(held)
    until(lambda: held.is_held, bool, "a worker is held in its transaction")
    workers += [Worker(cluster, number) for number in range(1, WORKERS)]
    job.feed()
    job.wait_for_all()  # What it has read, others do: its transaction was aborted without it.
    refusals = [line for line in held.said if line.startswith("refused")]
    held.go_on()
    until(
        lambda: [line for line in held.said if line.startswith("refused")],
        lambda said: len(said) > len(refusals),
        "who comes back is refused",
    )
    for topic, index in ((TRANSACTIONS, 0), (OFFSETS, 0), (TARGET, 0), (SOURCE, 1)):
        wait_until_in_sync(cluster, topic)
        job.feed()
        job.wait_for(sum(map(len, job.fed)) - CHUNK + 1)  # They are at it.
        leader = leader_of(cluster, topic, index)
        leader.kill()
        until(
            lambda topic=topic, index=index: leader_of(cluster, topic, index),
            lambda found, before=leader: found is not before,
            "another leads",
        )
        leader.start()
        job.wait_for_all()
    for worker in workers:
        worker.kill()
    workers.clear()
    job.read_to_the_end()
    job.close()
    assert job.seen == job.fed
