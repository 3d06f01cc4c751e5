"""`odradek.testing`: real nodes that come up, serve any client, stop, restart, die and leave nothing behind."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import KafkaConsumer, TopicPartition

from odradek.testing import RunningNode, running_node
from odradek.testing.node import NodeFailed, SubprocessNode

BOTH = pytest.mark.parametrize("in_process", [True, False], ids=["in-process", "subprocess"])


def produce(node: RunningNode, *values: bytes, topic: str = "t") -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": node.bootstrap_servers, "acks": "all", "log_level": 0})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(20) == 0
    assert failures == []


def consume(node: RunningNode, count: int, topic: str = "t") -> list[bytes]:
    consumer = KafkaConsumer(
        bootstrap_servers=node.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    try:
        consumer.assign([TopicPartition(topic, 0)])
        return [message.value for message in itertools.islice(consumer, count)]
    finally:
        consumer.close()


@BOTH
def test_a_node_serves_stops_and_keeps_its_port_and_data_over_a_restart(in_process: bool) -> None:
    with running_node(in_process=in_process) as node:
        directory = Path(node.data_directory)
        produce(node, b"one", b"two")
        assert consume(node, 2) == [b"one", b"two"]
        port = node.port
        node.stop()
        assert not node.running
        assert (directory / ".kafka_cleanshutdown").exists()
        node.start()
        assert (node.running, node.port) == (True, port)
        produce(node, b"three")
        assert consume(node, 3) == [b"one", b"two", b"three"]
    assert not node.running
    assert not directory.exists()


def test_a_killed_node_has_what_it_acknowledged() -> None:
    with running_node(in_process=False) as node:
        produce(node, *(b"%d" % number for number in range(50)))
        node.kill()
        assert not node.running
        node.start()
        assert consume(node, 50) == [b"%d" % number for number in range(50)]


def test_a_node_inside_this_process_cannot_be_killed_alone() -> None:
    with running_node() as node, pytest.raises(NodeFailed, match="in_process=False"):
        node.kill()


@BOTH
def test_properties_reach_the_node(in_process: bool) -> None:
    with running_node(in_process=in_process, properties={"num.partitions": "3"}) as node:
        produce(node, b"x")
        assert sorted(path.name for path in Path(node.data_directory).glob("t-*")) == ["t-0", "t-1", "t-2"]


@BOTH
def test_what_is_wrong_with_a_setting_is_told(in_process: bool) -> None:
    with (
        pytest.raises(NodeFailed, match=r"num\.partitions"),
        running_node(in_process=in_process, properties={"num.partitions": "none"}),
    ):
        pytest.fail("a node started that should not")


def test_data_is_kept_in_a_directory_that_was_given(tmp_path: Path) -> None:
    with running_node(data_directory=str(tmp_path)) as node:
        produce(node, b"kept")
    with running_node(data_directory=str(tmp_path), in_process=False) as node:
        assert consume(node, 1) == [b"kept"]
    assert (tmp_path / "t-0").is_dir()


def test_two_nodes_on_one_directory_are_refused(tmp_path: Path) -> None:
    with running_node(data_directory=str(tmp_path)):
        for in_process in (True, False):
            with (
                pytest.raises(NodeFailed, match=r"\.lock|directory"),
                running_node(data_directory=str(tmp_path), in_process=in_process),
            ):
                pytest.fail("a second node started on a directory in use")


def test_nodes_of_one_process_do_not_disturb_each_other() -> None:
    with running_node() as one, running_node() as other:
        assert one.port != other.port
        produce(one, b"for one")
        produce(other, b"for the other")
        assert (consume(one, 1), consume(other, 1)) == ([b"for one"], [b"for the other"])


def test_nothing_is_left_behind() -> None:
    with running_node():  # Whatever is imported and opened once for all stays.
        pass
    threads = threading.active_count()
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with running_node() as node:
            socket.create_connection((node.host, node.port)).close()
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_node_runs_beside_an_event_loop() -> None:
    async def use(node: RunningNode) -> bytes:
        reader, writer = await asyncio.open_connection(node.host, node.port)
        writer.write(bytes.fromhex("0000000a 0012 0000 00000007 ffff"))
        answer = await reader.readexactly(8)
        writer.close()
        await writer.wait_closed()
        return answer[4:]

    with running_node() as node:
        assert asyncio.run(use(node)) == bytes.fromhex("00000007")


def test_the_environment_of_the_tests_is_not_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_LISTENERS", "PLAINTEXT://nowhere:1")
    with running_node(in_process=False) as node:
        assert isinstance(node, SubprocessNode)
        assert f"127.0.0.1:{node.port}" in node.output()
        assert node.pid > 0


def test_a_lower_segment_ms_lets_expired_data_go_while_others_still_come() -> None:
    properties = {"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "0"}
    with running_node(properties=properties) as node:
        produce(node, b"old")
        admin = AdminClient({"bootstrap.servers": node.bootstrap_servers})
        for key, value in (("retention.ms", "1500"), ("segment.ms", "500")):
            entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            changed = admin.incremental_alter_configs(
                [ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[entry])]
            )
            for each in changed.values():
                each.result(20)
        reader = Consumer({"bootstrap.servers": node.bootstrap_servers, "group.id": "g"})
        producer = Producer({"bootstrap.servers": node.bootstrap_servers, "log_level": 0})
        deadline = time.monotonic() + 20
        while reader.get_watermark_offsets(ConfluentPartition("t", 0), timeout=10)[0] == 0:
            assert time.monotonic() < deadline, "the first record is still there"
            producer.produce("t", b"new")  # So the segment as a whole never expires, unless it is rolled.
            assert producer.flush(20) == 0
        reader.close()
