"""What operators do to real processes, with librdkafka's clients beside it: nothing that was acknowledged is lost."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tests.integration.cluster_asking import ask, eventually

from odradek.client.cluster import PartitionInfo, TopicPartition
from odradek.testing.cluster import ClusterNode, RunningCluster, running_cluster
from odradek.testing.process import NodeFailed

TOPIC = "kept"
PATIENCE_S = 30


def test_a_recreated_topic_begins_at_its_own_beginning(tmp_path: pathlib.Path) -> None:
    with running_cluster(brokers=3, data_directory=str(tmp_path)) as cluster:
        operator = Operator(cluster)
        operator.create([[1, 2, 3]])
        write(cluster, 500)
        operator.trim(400)
        for node in cluster.brokers:
            node.stop()
            node.start()
        operator.delete()
        operator.create([[1, 2, 3]])
        write(cluster, 10)
        for node in cluster.brokers:
            node.kill()
        cluster.start()
        assert kept(cluster) == numbers(10)


def test_log_dirs_in_another_order_are_refused(tmp_path: pathlib.Path) -> None:
    with running_cluster(brokers=1, log_dirs=2, data_directory=str(tmp_path)) as cluster:
        (node,) = cluster.brokers
        Operator(cluster).create([[1]])
        write(cluster, 10)
        first, second = node.data_directories
        for _ in range(2):
            node.stop()
            with log_dirs(node, second, first), pytest.raises(NodeFailed, match="holds the metadata log"):
                node.start()
            node.start()
            assert kept(cluster) == numbers(10)


def test_an_unmounted_directory_is_missed_at_every_start(tmp_path: pathlib.Path) -> None:
    with running_cluster(brokers=1, log_dirs=2, data_directory=str(tmp_path)) as cluster:
        (node,) = cluster.brokers
        Operator(cluster).create([[1]] * 4)
        write(cluster, 10, partitions=4)
        node.stop()
        mounted = node.data_directories[1]
        unmounted = mounted.rename(tmp_path / "unmounted")
        for _ in range(2):
            mounted.mkdir(exist_ok=True)
            with pytest.raises(NodeFailed, match="a log directory that this broker had is missing"):
                node.start()
        shutil.rmtree(mounted)
        unmounted.rename(mounted)
        node.start()
        assert [kept(cluster, index) for index in range(4)] == [numbers(10)] * 4


def test_who_comes_back_without_a_directory_leads_nothing_that_was_in_it(tmp_path: pathlib.Path) -> None:
    with running_cluster(brokers=2, controllers=1, log_dirs=2, data_directory=str(tmp_path)) as cluster:
        operator = Operator(cluster)
        operator.create([[1, 2]] * 4, {"min.insync.replicas": "2"})
        write(cluster, 10, partitions=4)
        one, other = cluster.brokers
        other.kill()
        one.kill()
        with log_dirs(one, one.data_directories[0]):
            one.start()
            other.start()
            eventually(lambda: all(each.leader == 2 for each in described(other)), "the other one leads")
            assert [kept(cluster, index) for index in range(4)] == [numbers(10)] * 4


def test_a_cleared_elr_stays_cleared_when_the_controller_starts_again(tmp_path: pathlib.Path) -> None:
    with running_cluster(brokers=2, controllers=1, data_directory=str(tmp_path)) as cluster:
        operator = Operator(cluster)
        operator.create([[1, 2]], {"min.insync.replicas": "2"})
        write(cluster, 10)
        one, other = cluster.brokers
        other.kill()
        eventually(lambda: described(one)[0].isr == (1,), "it is in sync alone")
        operator.configure("min.insync.replicas", "1")
        write(cluster, 10, first=10)
        controller = cluster.nodes[101]
        controller.stop()
        controller.start()
        one.kill()
        other.start()
        eventually(lambda: described(other)[0].leader == -1, "nobody may lead")
        one.start()
        eventually(lambda: described(one)[0].leader == 1, "who has everything leads")
        assert kept(cluster) == numbers(20)


def test_a_removed_replica_is_not_taken_for_one_that_has_everything(tmp_path: pathlib.Path) -> None:
    with running_cluster(brokers=3, controllers=1, data_directory=str(tmp_path)) as cluster:
        Operator(cluster).create([[1, 2, 3]], {"min.insync.replicas": "3"})
        write(cluster, 10)
        one, two, _ = cluster.brokers
        partition = TopicPartition(TOPIC, 0)
        assert not any(ask(two, lambda admin: admin.reassign_partitions({partition: (1,)})).values())
        eventually(lambda: described(two)[0].replicas == (1,), "the move has ended")
        eventually(lambda: not (two.data_directory / f"{TOPIC}-0").exists(), "its log is deleted")
        one.kill()
        eventually(lambda: described(two)[0].leader == -1, "the only replica is gone")
        ask(two, lambda admin: admin.reassign_partitions({partition: (1, 2)}))
        eventually(lambda: 2 in described(two)[0].replicas, "it is to be a replica again")
        assert described(two)[0].leader == -1
        one.start()
        eventually(lambda: described(two)[0].isr == (1, 2), "it has caught up")
        assert kept(cluster) == numbers(10)


class Operator:
    """What a person does, with the admin client of librdkafka."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})

    def create(self, assignment: list[list[int]], config: dict[str, str] | None = None) -> None:
        topic = NewTopic(TOPIC, len(assignment), replica_assignment=assignment, config=config or {})
        self._admin.create_topics([topic])[TOPIC].result(PATIENCE_S)

    def delete(self) -> None:
        self._admin.delete_topics([TOPIC])[TOPIC].result(PATIENCE_S)

    def trim(self, before: int) -> None:
        (done,) = self._admin.delete_records([Place(TOPIC, 0, before)]).values()
        assert done.result(PATIENCE_S).low_watermark == before

    def configure(self, name: str, text: str) -> None:
        entry = ConfigEntry(name, text, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


@contextmanager
def log_dirs(node: ClusterNode, *directories: pathlib.Path) -> Iterator[None]:
    """Another `log.dirs` in its file, for a while."""
    before = node.properties_file.read_text(encoding="utf-8")
    lines = [line for line in before.splitlines() if not line.startswith("log.dirs")]
    node.properties_file.write_text("\n".join([*lines, f"log.dirs={','.join(map(str, directories))}", ""]))
    yield
    node.properties_file.write_text(before, encoding="utf-8")


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def write(cluster: RunningCluster, count: int, *, first: int = 0, partitions: int = 1) -> None:
    """All of them acknowledged by all that are in sync."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0})
    refused: list[object] = []

    def delivered(why: object, _: object) -> None:
        if why is not None:
            refused.append(why)

    for number in range(first, first + count):
        for partition in range(partitions):
            producer.produce(TOPIC, b"%d" % number, partition=partition, on_delivery=delivered)
    assert producer.flush(PATIENCE_S) == 0
    assert refused == []


def kept(cluster: RunningCluster, partition: int = 0) -> list[bytes]:
    """What a consumer finds from the beginning to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "looks",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    found: list[bytes] = []
    try:
        consumer.assign([Place(TOPIC, partition, 0)])
        while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
            content = message.value()
            assert isinstance(content, bytes)
            found.append(content)
        assert message is not None, "the end of the partition was not reached"
    finally:
        consumer.close()
    return found


def described(node: ClusterNode) -> list[PartitionInfo]:
    (topic,) = [each for each in ask(node, lambda admin: admin.list_topics()) if each.name == TOPIC]
    return list(topic.partitions)
