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

from odradek.client.admin.topics import Election
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


def test_a_separate_controllers_directories_keep_their_order(tmp_path: pathlib.Path) -> None:
    """It would begin an empty metadata log, and its broker would set every partition aside."""
    with running_cluster(brokers=1, controllers=1, log_dirs=2, data_directory=str(tmp_path)) as cluster:
        controller = cluster.nodes[101]
        Operator(cluster).create([[1]])
        write(cluster, 10)
        first, second = controller.data_directories
        controller.stop()
        with log_dirs(controller, second, first), pytest.raises(NodeFailed, match="holds the metadata log"):
            controller.start()
        controller.start()
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
            write(cluster, 10, first=10, partitions=4)
            one.stop()
        with pytest.raises(NodeFailed, match="move the copy away"):
            one.start()  # With both directories again: what the second one has is older than what is in the first.
        for copy in one.data_directories[1].glob(f"{TOPIC}-*"):
            shutil.rmtree(copy)
        one.start()
        assert [kept(cluster, index) for index in range(4)] == [numbers(20)] * 4


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


def test_a_voter_without_its_disk_knows_so_at_its_second_start(tmp_path: pathlib.Path) -> None:
    """Of three voters one is behind; another had what was committed since, and lost it."""
    with running_cluster(data_directory=str(tmp_path)) as cluster:
        one, behind, lost = cluster.brokers
        behind.kill()
        Operator(cluster).create([[1]])
        write(cluster, 10)
        one.kill()
        lost.kill()
        shutil.rmtree(lost.data_directory)
        cluster.format(lost)
        promise = lost.data_directory / "__cluster_metadata-0" / "lost-promises"
        for _ in range(2):
            lost.begin()
            eventually(promise.exists, "it knows that it has lost its promises")
            lost.kill()
        behind.begin()
        lost.begin()
        one.begin()
        for node in cluster.brokers:
            node.wait_until_ready()
        assert kept(cluster) == numbers(10)
        eventually(lambda: not promise.exists(), "a leader has brought it up to date")


def test_a_move_to_a_dead_broker_ends_when_it_is_redirected(tmp_path: pathlib.Path) -> None:
    """And another min.insync.replicas, set while nobody leads, leaves a leader to be found."""
    with running_cluster(brokers=3, controllers=1, data_directory=str(tmp_path)) as cluster:
        operator = Operator(cluster)
        operator.create([[1, 2]], {"min.insync.replicas": "2"})
        write(cluster, 10)
        one, two, dead = cluster.brokers
        dead.kill()
        partition = TopicPartition(TOPIC, 0)
        for replicas in ((1, 3), (1, 2)):
            assert not any(ask(one, lambda admin, to=replicas: admin.reassign_partitions({partition: to})).values())
        eventually(lambda: described(one)[0].replicas == (1, 2), "the move has ended")
        eventually(lambda: sorted(described(one)[0].isr) == [1, 2], "both are in sync")
        dead.start()
        one.kill()
        two.kill()
        eventually(lambda: described(dead)[0].leader == -1, "nobody leads")
        operator.configure("min.insync.replicas", "1")
        two.start()
        one.start()
        eventually(lambda: described(dead)[0].leader > 0, "somebody leads")
        assert kept(cluster) == numbers(10)


def test_a_coordinator_that_is_passed_on_while_it_loads(tmp_path: pathlib.Path) -> None:
    """What is committed meanwhile stays committed, and no member is thrown out by a coordinator of before."""
    properties = {"offsets.topic.num.partitions": "1", "offsets.load.buffer.size": "1000"}
    with running_cluster(data_directory=str(tmp_path), properties=properties) as cluster:
        Operator(cluster).create([[1, 2, 3]] * 4)
        group = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "passed on", "log_level": 0}
        asking = Consumer(group | {"enable.auto.commit": False})
        try:
            for number in range(300):
                asking.commit(offsets=[Place(TOPIC, index, number) for index in range(4)], asynchronous=False)
            coordinator = TopicPartition("__consumer_offsets", 0)
            node = cluster.brokers[0]
            for first in (2, 1, 3, 2, 1, 2, 3):
                order = (first, *(each for each in (1, 2, 3) if each != first))
                ask(node, lambda admin, to=order: admin.reassign_partitions({coordinator: to}))
                ask(node, lambda admin: admin.elect_leaders(Election.PREFERRED, [coordinator]))
            for number in range(300, 310):
                asking.commit(offsets=[Place(TOPIC, index, number) for index in range(4)], asynchronous=False)
            found = asking.committed([Place(TOPIC, index) for index in range(4)], timeout=PATIENCE_S)
            assert [each.offset for each in found] == [309] * 4
        finally:
            asking.close()


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
