"""Apache Kafka's tools for groups, and confluent-kafka's and kafka-python's administration of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from bench.apache_kafka import tool
from bench.servers import Server
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient
from tests.compat.brokers import new_server, running
from tests.compat.clients import CONFLUENT, ProducerSettings, Record
from tests.compat.members import Member, share, until

pytestmark = pytest.mark.compat

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
BASE_MS = 1_700_000_000_000
TIMEOUT_S = 30


@pytest.fixture
def member(server: Server, new_topic: Callable[..., str]) -> Iterator[Member]:
    """Has read 40 records of a topic with two partitions; its group is called as the topic, with `-group`."""
    topic = new_topic(2)
    records = [Record(number % 2, BASE_MS + number, None, b"%d" % number) for number in range(40)]
    CONFLUENT.produce(server.bootstrap, topic, records, ProducerSettings())
    started = Member("confluent-kafka", server.bootstrap, f"{topic}-group", topic, session_ms="10000")
    try:
        share(2, started)
        until(lambda: len(started.read) >= 40, started)
        yield started
    finally:
        started.kill()


def groups_tool(server: Server, *words: object, check: bool = True) -> str:
    return tool(GROUPS, "--bootstrap-server", server.bootstrap, *words, check=check)


@pytest.mark.java
def test_kafka_consumer_groups_describes_resets_and_deletes(server: Server, member: Member) -> None:
    group = member.group
    topic = group.removesuffix("-group")
    assert group in groups_tool(server, "--list").splitlines()
    assert re.search(rf"{group}\s+Stable", groups_tool(server, "--list", "--state"))
    described = groups_tool(server, "--describe", "--group", group)
    for partition in range(2):
        assert re.search(rf"{group}\s+{topic}\s+{partition}\s+\S*\s*20\s+20\s+0\s+rdkafka\S*\s+/127.0.0.1", described)
    members = groups_tool(server, "--describe", "--group", group, "--members", "--verbose")
    assert re.search(rf"{group}\s+rdkafka-\S+\s+/127.0.0.1\s+rdkafka\s+2\s+.*{topic}:0,1", members)
    state = groups_tool(server, "--describe", "--group", group, "--state")
    assert re.search(rf"{group}\s+127.0.0.1:{server.port}\s+\(1\)\s+range\s+Stable", state)
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-offset", 5)
    assert "not empty" in groups_tool(server, "--delete", "--group", group, check=False)
    assert "inactive" in groups_tool(server, *reset, "--execute", check=False)
    member.leave()
    previewed = groups_tool(server, *reset, "--dry-run")
    assert re.search(rf"{group}\s+{topic}\s+1\s+5", previewed)
    groups_tool(server, *reset, "--execute")
    after = groups_tool(server, "--describe", "--group", group)
    assert re.search(rf"{group}\s+{topic}\s+0\s+\S*\s*5\s+20\s+15", after)
    groups_tool(server, "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    remaining = groups_tool(server, "--describe", "--group", group)
    assert re.search(rf"{group}\s+{topic}\s+1\s+\S*\s*5\s+20\s+15", remaining)
    assert not re.search(rf"{group}\s+{topic}\s+0\s+\S*\s*5\s", remaining)
    assert "successful" in groups_tool(server, "--delete", "--group", group)
    assert group not in groups_tool(server, "--list").splitlines()
    assert "not found" in groups_tool(server, "--describe", "--group", group, check=False)


@pytest.mark.java
def test_console_consumer_in_a_group_goes_on_where_it_stopped(server: Server, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1)
    values = [b"value-%d" % number for number in range(20)]
    records = [Record(0, BASE_MS, None, value) for value in values]
    CONFLUENT.produce(server.bootstrap, topic, records, ProducerSettings())
    address = ("--bootstrap-server", server.bootstrap, "--topic", topic, "--group", f"{topic}-console")
    limits = ("--max-messages", 10, "--timeout-ms", 30_000)
    classic = ("--consumer-property", "group.protocol=classic", "--consumer-property", "auto.offset.reset=earliest")
    said = [
        [line for line in tool(CONSOLE, *address, *limits, *classic).splitlines() if line.startswith("value-")]
        for _ in range(2)
    ]
    assert said == [[value.decode() for value in values[:10]], [value.decode() for value in values[10:]]]


@pytest.mark.java
def test_kafka_reads_what_the_coordinator_has_written() -> None:
    """The console consumer's formatters on the topic, and DumpLogSegments on its files."""
    with running(new_server(properties={"offsets.topic.num.partitions": "1"})) as server:
        topic = f"read-by-kafka-{os.getpid()}"
        records = [Record(0, BASE_MS, None, b"%d" % number) for number in range(7)]
        CONFLUENT.produce(server.bootstrap, topic, records, ProducerSettings())
        member = Member("confluent-kafka", server.bootstrap, "readable", topic, session_ms="10000", instance="me")
        try:
            until(lambda: len(member.read) >= 7, member)
        finally:
            member.kill()
        address = ("--bootstrap-server", server.bootstrap, "--topic", "__consumer_offsets", "--from-beginning")
        package = "org.apache.kafka.tools.consumer"
        said = tool(
            CONSOLE, *address, "--formatter", f"{package}.OffsetsMessageFormatter", "--timeout-ms", 5_000, check=False
        )
        assert re.search(rf'"group":"readable","topic":"{topic}","partition":0.*"offset":7,', said)
        said = tool(
            CONSOLE,
            *address,
            *("--formatter", f"{package}.GroupMetadataMessageFormatter", "--timeout-ms", 5_000),
            check=False,
        )
        assert '"group":"readable"' in said
        assert re.search(r'"protocolType":"consumer","generation":1,"protocol":"range","leader":"me-', said)
        server.stop()
        segment = server.data / "__consumer_offsets-0" / "00000000000000000000.log"
        dumped = tool("org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", segment)
        assert f'"group":"readable","topic":"{topic}","partition":0' in dumped
        assert '"generation":1' in dumped


def test_confluent_admin_of_groups(server: Server, member: Member) -> None:
    group = member.group
    topic = group.removesuffix("-group")
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    stable = {ConsumerGroupState.STABLE}
    listed = admin.list_consumer_groups(states=stable, request_timeout=TIMEOUT_S).result()
    assert group in [each.group_id for each in listed.valid]
    assert listed.errors == []
    described = admin.describe_consumer_groups([group], request_timeout=TIMEOUT_S)[group].result()
    assert (described.state, described.partition_assignor) == (ConsumerGroupState.STABLE, "range")
    (only,) = described.members
    assert {each.partition for each in only.assignment.topic_partitions} == {0, 1}
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    assert {(each.partition, each.offset) for each in offsets.topic_partitions} == {(0, 20), (1, 20)}
    with pytest.raises(confluent_kafka.KafkaException) as busy:
        admin.delete_consumer_groups([group])[group].result()
    assert busy.value.args[0].code() == confluent_kafka.KafkaError.NON_EMPTY_GROUP
    member.leave()
    moved = [confluent_kafka.TopicPartition(topic, 0, 3)]
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, moved)])[group].result()
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    assert {(each.partition, each.offset) for each in offsets.topic_partitions} == {(0, 3), (1, 20)}
    admin.delete_consumer_groups([group])[group].result()
    listed = admin.list_consumer_groups(request_timeout=TIMEOUT_S).result()
    assert group not in [each.group_id for each in listed.valid]


def test_kafka_python_admin_of_groups(server: Server, member: Member) -> None:
    group = member.group
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    try:
        assert group in str(admin.list_groups())
        assert "Stable" in str(admin.describe_groups([group]))
        offsets = admin.list_group_offsets([group])
        assert "20" in str(offsets)
    finally:
        admin.close()
    member.leave()


def test_a_consumer_that_assigns_itself_may_commit(server: Server, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1)
    settings = {"bootstrap.servers": server.bootstrap, "group.id": f"{topic}-simple", "enable.auto.commit": False}
    where = confluent_kafka.TopicPartition(topic, 0, 5)
    for _ in range(2):
        consumer = confluent_kafka.Consumer(settings)
        consumer.assign([where])
        consumer.commit(offsets=[where], asynchronous=False)
        (committed,) = consumer.committed([where], timeout=TIMEOUT_S)
        assert committed.offset == 5
        consumer.close()
