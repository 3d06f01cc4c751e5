"""Apache Kafka's command-line tools, as they come, against the node."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.apache_kafka import tool
from bench.servers import Server
from tests.compat.clients import CONFLUENT, ProducerSettings, Record

pytestmark = [pytest.mark.compat, pytest.mark.java]

BASE_MS = 1_700_000_000_000


def test_kafka_topics_creates_lists_alters_and_deletes(server: Server) -> None:
    topics = "org.apache.kafka.tools.TopicCommand"
    address = ("--bootstrap-server", server.bootstrap)
    tool(topics, *address, "--create", "--topic", "tools-topic", "--partitions", 3, "--config", "retention.ms=3600000")
    assert "tools-topic" in tool(topics, *address, "--list").splitlines()
    assert "already exists" in tool(topics, *address, "--create", "--topic", "tools-topic", check=False)
    refused = tool(topics, *address, "--create", "--topic", "too-many", "--replication-factor", 2, check=False)
    assert "replication factor" in refused.lower()
    tool(topics, *address, "--alter", "--topic", "tools-topic", "--partitions", 4)
    tool(topics, *address, "--delete", "--topic", "tools-topic")
    assert "tools-topic" not in tool(topics, *address, "--list").splitlines()


def test_kafka_topics_describes(server: Server, new_topic: Callable[..., str]) -> None:
    topic = new_topic(3, retention_ms="3600000")
    said = tool(
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", server.bootstrap, "--describe", "--topic", topic
    )
    assert re.search(rf"Topic: {topic}\s+TopicId: \S{{22}}\s+PartitionCount: 3\s+ReplicationFactor: 1", said)
    assert "retention.ms=3600000" in said
    for partition in range(3):
        assert re.search(rf"Partition: {partition}\s+Leader: 1\s+Replicas: 1\s+Isr: 1", said)


def test_console_producer_and_consumer(server: Server, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1)
    address = ("--bootstrap-server", server.bootstrap, "--topic", topic)
    lines = [f"key-{number}:value {number}" for number in range(20)]
    properties = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    given = "".join(f"{line}\n" for line in lines)
    tool("org.apache.kafka.tools.ConsoleProducer", *address, *properties, given=given)
    reading = ("--partition", 0, "--offset", "earliest", "--max-messages", 20, "--timeout-ms", 30_000)
    printing = ("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
    said = tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *address, *reading, *printing)
    assert [line for line in said.splitlines() if line.startswith("key-")] == lines


def test_get_offsets_and_delete_records(server: Server, new_topic: Callable[..., str], tmp_path: Path) -> None:
    topic = new_topic(2)
    records = [Record(number % 2, BASE_MS + number, None, b"%d" % number) for number in range(30)]
    CONFLUENT.produce(server.bootstrap, topic, records, ProducerSettings())

    def offsets(when: str) -> list[str]:
        said = tool(
            "org.apache.kafka.tools.GetOffsetShell",
            "--bootstrap-server",
            server.bootstrap,
            "--topic",
            topic,
            "--time",
            when,
        )
        return sorted(line for line in said.splitlines() if line.startswith(topic))

    assert offsets("-1") == [f"{topic}:0:15", f"{topic}:1:15"]
    wanted = tmp_path / "offsets.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 7}]}))
    said = tool(
        "org.apache.kafka.tools.DeleteRecordsCommand",
        *("--bootstrap-server", server.bootstrap, "--offset-json-file", wanted),
    )
    assert re.search(rf"{topic}-0\s+low_watermark: 7", said)
    assert offsets("earliest") == [f"{topic}:0:7", f"{topic}:1:0"]
    assert offsets("max-timestamp") == [f"{topic}:0:14", f"{topic}:1:14"]


def test_producer_performance(server: Server, new_topic: Callable[..., str]) -> None:
    topic = new_topic(3)
    said = tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", 20_000, "--record-size", 100, "--throughput", -1),
        *("--bootstrap-server", server.bootstrap, "--command-property", "acks=all"),
    )
    assert "20000 records sent" in said
    records = CONFLUENT.consume(server.bootstrap, topic, dict.fromkeys(range(3), 0), 20_000)
    assert len(records) == 20_000


def test_broker_api_versions(server: Server) -> None:
    said = tool("org.apache.kafka.tools.BrokerApiVersionsCommand", "--bootstrap-server", server.bootstrap)
    assert f"{server.bootstrap} (id: 1 rack: null isFenced: false)" in said
    assert re.search(r"Produce\(0\): 0 to 13 \[usable: 13\]", said)
    assert re.search(r"Fetch\(1\): 4 to 18 \[usable: 18\]", said)
    for api in ("ListOffsets(2)", "Metadata(3)", "CreateTopics(19)", "DeleteRecords(21)", "InitProducerId(22)"):
        line = next(line for line in said.splitlines() if line.strip().startswith(api))
        assert "usable" in line, line
