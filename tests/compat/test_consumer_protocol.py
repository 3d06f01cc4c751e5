"""`group.protocol=consumer`: members come, go, are killed, subscribe by expression, change protocols as they run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.apache_kafka import ApacheKafka, tool
from bench.servers import Server
from tests.compat.brokers import created_topic, new_server, running
from tests.compat.clients import CONFLUENT, ProducerSettings, Record
from tests.compat.members import QUICK_CONSUMER_GROUPS, Member, come_and_go, share, until
from tests.compat.patience import eventually

pytestmark = pytest.mark.compat

JAVA = pytest.param("java", marks=pytest.mark.java)
CLIENTS = ["confluent-kafka", JAVA]
PARTITIONS = 4
BASE_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def consumer_server() -> Iterator[Server]:
    with running(new_server(properties=QUICK_CONSUMER_GROUPS)) as server:
        yield server


@pytest.fixture
def join(consumer_server: Server) -> Iterator[Callable[..., Member]]:
    """Starts members of a group; all that still run are killed at the end."""
    started: list[Member] = []

    def start(client: str, topic: str, *, group: str = "", protocol: str = "consumer", **settings: str) -> Member:
        group = group or f"{topic}-group"
        started.append(Member(client, consumer_server.bootstrap, group, topic, protocol=protocol, **settings))
        return started[-1]

    yield start
    for member in started:
        member.kill()


def new_topic(server: Server, name: str = "", partitions: int = PARTITIONS) -> str:
    return created_topic(server, partitions, {}, name)


def produce(server: Server, topic: str, count: int, partitions: int = PARTITIONS) -> None:
    records = [Record(number % partitions, BASE_MS + number, None, b"%d" % number) for number in range(count)]
    CONFLUENT.produce(server.bootstrap, topic, records, ProducerSettings())


@pytest.mark.parametrize("client", CLIENTS)
def test_partitions_follow_members(client: str, consumer_server: Server, join: Callable[..., Member]) -> None:
    topic = new_topic(consumer_server)
    first = come_and_go(PARTITIONS, lambda: join(client, topic))
    # Partitions move one by one: whoever keeps some has never owned nothing meanwhile.
    assert all(first.changes[first.changes.index({0, 1, 2, 3}) :]), first
    first.leave()


@pytest.mark.parametrize("client", CLIENTS)
def test_nothing_is_lost_or_doubled_while_members_come_and_go(
    client: str, consumer_server: Server, join: Callable[..., Member]
) -> None:
    topic = new_topic(consumer_server)
    produce(consumer_server, topic, 100)
    first = join(client, topic)
    until(lambda: len(first.read) >= 100, first)
    second = join(client, topic)
    share(PARTITIONS, first, second)
    produce(consumer_server, topic, 100)
    until(lambda: len(first.read) + len(second.read) >= 200, first, second)
    second.leave()
    share(PARTITIONS, first)
    produce(consumer_server, topic, 40)
    until(lambda: len(first.read) + len(second.read) >= 240, first, second)
    everything = sorted((partition, offset) for partition in range(PARTITIONS) for offset in range(60))
    assert sorted(first.read + second.read) == everything


@pytest.mark.parametrize("client", CLIENTS)
def test_static_members_keep_their_place(client: str, consumer_server: Server, join: Callable[..., Member]) -> None:
    topic = new_topic(consumer_server)
    one, two = join(client, topic, instance="one"), join(client, topic, instance="two")
    share(PARTITIONS, one, two)
    had, changes = two.owned, len(one.changes)
    two.leave()
    again = join(client, topic, instance="two")
    share(PARTITIONS, one, again)
    assert again.owned == had
    assert len(one.changes) == changes, one


@pytest.mark.parametrize("client", CLIENTS)
def test_a_topic_that_grows(client: str, consumer_server: Server, join: Callable[..., Member]) -> None:
    topic = new_topic(consumer_server, partitions=2)
    member = join(client, topic)
    share(2, member)
    words = ("--bootstrap-server", consumer_server.bootstrap, "--alter", "--topic", topic, "--partitions", 3)
    tool("org.apache.kafka.tools.TopicCommand", *words)
    share(3, member)


@pytest.mark.parametrize("client", CLIENTS)
def test_an_expression_follows_topics(client: str, consumer_server: Server, join: Callable[..., Member]) -> None:
    """The broker matches it; a topic made later is found without anybody asking for metadata."""
    prefix = f"expression-{os.getpid()}-{client}"
    first = new_topic(consumer_server, f"{prefix}.a", 1)
    new_topic(consumer_server, f"{prefix}-other", 1)
    member = join(client, f"^{prefix}\\.[a-z]+", group=f"{prefix}-group")
    produce(consumer_server, first, 3, 1)
    until(lambda: len(member.read) >= 3, member)
    second = new_topic(consumer_server, f"{prefix}.b", 1)
    produce(consumer_server, second, 4, 1)
    until(lambda: len(member.read) >= 7, member)
    assert sorted(member.read) == sorted([(0, offset) for count in (3, 4) for offset in range(count)])


@pytest.mark.parametrize("client", CLIENTS)
def test_a_group_survives_its_coordinator(client: str) -> None:
    with running(new_server(properties=QUICK_CONSUMER_GROUPS)) as server:
        topic = new_topic(server)
        produce(server, topic, 20)
        member = Member(client, server.bootstrap, "survivors", topic, protocol="consumer")
        try:
            until(lambda: len(member.read) >= 20, member)
            server.kill()
            server.spawn()
            server.wait_until_ready()
            produce(server, topic, 20)
            until(lambda: len(set(member.read)) >= 40, member)
            assert len(member.read) == 40, member
        finally:
            member.kill()


@pytest.mark.parametrize(
    ("client", "strategy"),
    [
        ("confluent-kafka", "range"),
        pytest.param("java", "range", marks=pytest.mark.java),
        pytest.param("java", "cooperative-sticky", marks=pytest.mark.java),
    ],
)
def test_a_running_group_changes_protocols_and_back(
    client: str, strategy: str, consumer_server: Server, join: Callable[..., Member]
) -> None:
    topic = new_topic(consumer_server)
    produce(consumer_server, topic, 40)
    classic = [join(client, topic, protocol="classic", strategy=strategy) for _ in range(2)]
    share(PARTITIONS, *classic)
    new = join(client, topic)
    share(PARTITIONS, new, *classic)
    classic[0].leave()
    share(PARTITIONS, new, classic[1])
    classic[1].leave()
    share(PARTITIONS, new)
    old = join(client, topic, protocol="classic", strategy=strategy)
    share(PARTITIONS, new, old)
    new.leave()
    share(PARTITIONS, old)
    produce(consumer_server, topic, 40)
    everyone = [*classic, new, old]
    everything = sorted((partition, offset) for partition in range(PARTITIONS) for offset in range(20))

    def reads() -> list[tuple[int, int]]:
        return sorted(read for member in everyone for read in member.read)

    until(lambda: len(set(reads())) >= 80, *everyone)
    assert sorted(set(reads())) == everything
    if client == "java":
        # A classic member may commit whatever it likes in its generation, so only the client keeps itself from
        # reading on where a partition has moved away. With librdkafka a partition has come twice, if rarely.
        assert reads() == everything


@pytest.mark.java
def test_kafkas_tools_describe_it(consumer_server: Server, join: Callable[..., Member]) -> None:
    topic = new_topic(consumer_server, partitions=2)
    produce(consumer_server, topic, 10, 2)
    group = f"{topic}-group"
    member = join("java", topic)
    until(lambda: len(member.read) >= 10, member)

    def groups(*words: object) -> str:
        package = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        return tool(package, "--bootstrap-server", consumer_server.bootstrap, *words)

    listed = tool("org.apache.kafka.tools.GroupsCommand", "--bootstrap-server", consumer_server.bootstrap, "--list")
    assert re.search(rf"{group}\s+Consumer\s+consumer", listed)
    assert re.search(rf"{group}\s+Consumer", groups("--list", "--type"))
    described = groups("--describe", "--group", group)
    for partition in range(2):
        assert re.search(rf"{group}\s+{topic}\s+{partition}\s+\S*\s*5\s+5\s+0\s+\S+\s+/127.0.0.1", described)
    members = groups("--describe", "--group", group, "--members", "--verbose")
    # CURRENT-EPOCH, CURRENT-ASSIGNMENT, TARGET-EPOCH, TARGET-ASSIGNMENT
    assert re.search(rf"{group}\s+\S+.*\s2\s+2\s+{topic}:0,1\s+2\s+{topic}:0,1", members), members
    state = groups("--describe", "--group", group, "--state", "--verbose")
    assert re.search(rf"{group}\s+\S+\s+\(1\)\s+uniform\s+Stable\s+2\s+2\s+1", state), state
    member.leave()
    eventually(lambda: "Empty" in groups("--describe", "--group", group, "--state"), True)
    assert "successful" in groups("--delete", "--group", group)


@pytest.mark.java
def test_kafka_reads_what_the_coordinator_has_written() -> None:
    with running(new_server(properties=QUICK_CONSUMER_GROUPS | {"offsets.topic.num.partitions": "1"})) as server:
        topic = new_topic(server, partitions=2)
        member = Member(
            "confluent-kafka", server.bootstrap, "readable", f"^{topic}", protocol="consumer", instance="me"
        )
        try:
            share(2, member)
        finally:
            member.kill()
        server.stop()
        segment = server.data / "__consumer_offsets-0" / "00000000000000000000.log"
        dumped = tool("org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", segment)
        for said in (
            rf'"groupId":"readable","regularExpression":"\(\^{topic}\)"',
            rf'"topics":\["{topic}"\],"version":\d+,"timestamp":\d+',
            r'"instanceId":"me","rackId":null,"clientId":"rdkafka","clientHost":"/127.0.0.1"',
            r'"assignmentEpoch":2,"assignmentTimestamp":\d+',
            r'"memberEpoch":2,"previousMemberEpoch":0,"state":0,"assignedPartitions":'
            r'\[\{"topicId":"[^"]+","partitions":\[0,1\],"assignmentEpochs":\[2,2\]\}\]',
        ):
            assert re.search(said, dumped), f"{said}\n{dumped}"


@pytest.mark.java
@pytest.mark.parametrize("to_kafka", [True, False], ids=["to Apache Kafka", "from Apache Kafka"])
def test_a_group_is_handed_over_with_its_directory(tmp_path: Path, to_kafka: bool) -> None:
    """Members, epochs, assignments and expressions are what they were; a newcomer begins the next epoch."""
    kinds: list[Callable[..., Server]] = [new_server, ApacheKafka]
    before, after = kinds if to_kafka else kinds[::-1]
    # Nobody has to hurry: the session outlasts the change.
    settings = QUICK_CONSUMER_GROUPS | {"group.consumer.session.timeout.ms": "45000"}
    with running(before(tmp_path, properties=settings)) as server:
        topic = new_topic(server)
        static = Member("confluent-kafka", server.bootstrap, "static", topic, protocol="consumer", instance="me")
        found = Member("confluent-kafka", server.bootstrap, "found", f"^{topic}", protocol="consumer")
        try:
            share(PARTITIONS, static)
            share(PARTITIONS, found)
        finally:
            static.kill()
            found.kill()
    command = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    with running(after(tmp_path, properties=settings)) as server:

        def members(group: str) -> str:
            address = ("--bootstrap-server", server.bootstrap, "--group", group)
            return tool(command, *address, "--describe", "--members", "--verbose")

        everything = f"{topic}:0,1,2,3"
        assert re.search(rf"static\s+\S+\s+me\s.*\s4\s+2\s+{everything}\s+2\s+{everything}", members("static"))
        assert re.search(rf"found\s.*\s4\s+2\s+{everything}\s+2\s+{everything}", members("found"))
        newcomer = Member("confluent-kafka", server.bootstrap, "static", topic, protocol="consumer")
        try:
            eventually(lambda: bool(re.search(rf"\s0\s+3\s+-\s+3\s+{topic}:2,3", members("static"))), True)
        finally:
            newcomer.kill()
