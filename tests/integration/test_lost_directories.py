"""Log directories that are lost on real processes: what was in them is offline, never empty, and comes back."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from tests.integration.cluster_asking import ask, eventually

from odradek.client.admin.topics import NewTopic
from odradek.client.cluster import PartitionInfo, TopicPartition
from odradek.testing.cluster import ProcessNode, RunningCluster, running_cluster
from odradek.testing.process import NodeFailed

PARTITIONS = range(4)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    """A controller of its own, and brokers with two directories, whose partitions are spread over both."""
    properties = {
        "replica.high.watermark.checkpoint.interval.ms": "300"
    }  # A write that cannot be done is noticed soon.
    with running_cluster(brokers=3, controllers=1, log_dirs=2, properties=properties) as running:
        eventually(lambda: len(ask(running.nodes[1], lambda admin: admin.describe_cluster()).brokers) == 3, "all live")
        yield running


def test_what_was_moved_to_a_broker_is_not_taken_for_empty_when_its_directory_is_away(cluster: RunningCluster) -> None:
    """The broker hears of these partitions by the move alone, and tells the controller then where it has put them."""
    create(cluster, NewTopic("moved", assignments=((1,),) * len(PARTITIONS)))
    fill(cluster, "moved")
    move(cluster, {TopicPartition("moved", index): (3,) for index in PARTITIONS})
    node = cluster.nodes[3]
    lost = [index for index in PARTITIONS if (node.data_directories[1] / f"moved-{index}").exists()]
    assert 0 < len(lost) < len(PARTITIONS)
    node.stop()
    with away(node.data_directories[1]):
        node.start()
        eventually(
            lambda: {each.leader for each in described(cluster, "moved")} == {3, -1},
            "what is there is led by its broker",
        )
        assert [each.partition for each in described(cluster, "moved") if each.leader == -1] == lost
        node.stop()
    node.start()
    eventually(lambda: all(each.leader == 3 for each in described(cluster, "moved")), "all of them are led again")
    assert ends(cluster, "moved") == [1] * len(PARTITIONS)


def test_who_was_moved_to_a_directory_that_fails_leads_no_more(cluster: RunningCluster) -> None:
    create(cluster, NewTopic("failing", assignments=((1, 2),) * len(PARTITIONS)))
    move(cluster, {TopicPartition("failing", index): (3, 2) for index in PARTITIONS})
    eventually(lambda: all(3 in each.isr for each in described(cluster, "failing")), "it is in sync")
    node = cluster.nodes[3]
    lost = [index for index in PARTITIONS if (node.data_directories[1] / f"failing-{index}").exists()]
    shutil.rmtree(node.data_directories[1])
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0})
    failures: list[object] = []

    def lead_elsewhere() -> bool:
        for index in PARTITIONS:
            producer.produce("failing", bytes(100), partition=index, on_delivery=lambda why, _: failures.append(why))
        producer.poll(0)
        return [
            each.partition for each in described(cluster, "failing") if (each.leader, each.isr) == (2, (2,))
        ] == lost

    eventually(lead_elsewhere, "what was in the directory is led by the other replica")
    assert producer.flush(30) == 0
    assert not any(failures)
    assert all(3 in each.isr for each in described(cluster, "failing") if each.partition not in lost)
    assert node.running
    node.stop()
    with pytest.raises(NodeFailed, match=r"is empty, and a log directory that this broker had is missing"):
        node.start()  # What was moved to it in the test before is nobody else's.
    cluster.format(node)
    node.start()


def test_a_node_that_loses_the_directory_with_the_metadata_ends(cluster: RunningCluster) -> None:
    create(cluster, NewTopic("led", assignments=((2,),) * len(PARTITIONS)))
    node = cluster.nodes[2]
    assert isinstance(node, ProcessNode)
    first = node.data_directories[0]
    eventually(lambda: any((first / f"led-{index}").exists() for index in PARTITIONS), "there are partitions in it")
    index = next(index for index in PARTITIONS if (first / f"led-{index}").exists())
    with away(first):
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "linger.ms": 0})
        producer.produce("led", bytes(100), partition=index)
        eventually(lambda: not node.running, "it ends")
        producer.purge()
    said = node.process.output()
    assert f"{first}, the directory with the cluster's metadata, has failed" in said
    assert "Traceback" not in said
    assert "Stopped cleanly" not in said.rpartition("ready")[2]
    node.start()


@contextmanager
def away(directory: pathlib.Path) -> Iterator[None]:
    """A file is in its place, as if nothing could be mounted there."""
    kept = directory.rename(directory.with_name(directory.name + "-away"))
    directory.write_text("")
    yield
    directory.unlink()
    kept.rename(directory)


def create(cluster: RunningCluster, topic: NewTopic) -> None:
    assert not any(ask(cluster.nodes[1], lambda admin: admin.create_topics([topic])).values())


def fill(cluster: RunningCluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0})
    for index in PARTITIONS:
        producer.produce(topic, bytes(100), partition=index)
    assert producer.flush(30) == 0


def move(cluster: RunningCluster, targets: dict[TopicPartition, tuple[int, ...] | None]) -> None:
    assert not any(ask(cluster.nodes[1], lambda admin: admin.reassign_partitions(targets)).values())
    eventually(lambda: not ask(cluster.nodes[1], lambda admin: admin.list_reassignments()), "the moves have ended")


def described(cluster: RunningCluster, topic: str) -> list[PartitionInfo]:
    found = {each.name: each for each in ask(cluster.nodes[1], lambda admin: admin.list_topics())}
    return list(found[topic].partitions)


def ends(cluster: RunningCluster, topic: str) -> list[int]:
    partitions = [TopicPartition(topic, index) for index in PARTITIONS]
    found = ask(cluster.nodes[1], lambda admin: admin.list_offsets(dict.fromkeys(partitions, -1)))
    return [found[each].offset for each in partitions]
