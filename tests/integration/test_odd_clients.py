"""What odd clients do to groups and topics of a real node: librdkafka and kafka-python, with assignors that lie.

None of it may stop the node, hang who waits, or cost another group anything.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import kafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from tests.leftovers import QUIET, forget_sockets

from odradek.testing.cluster import ClusterNode, running_cluster

# kafka-python leaves sockets open whose connections failed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

PATIENCE_S = 30.0
NO_OFFSET = -1001
"""As librdkafka says that there is none."""
BAD_EXPRESSION = r"^(odd)\1"
"""Which librdkafka takes, and RE2 does not know."""
OFFSETS_TOPIC = "__consumer_offsets"

_numbers = itertools.count()


PROPERTIES = {
    "log.initial.task.delay.ms": "300",
    "log.retention.check.interval.ms": "300",
    "group.initial.rebalance.delay.ms": "300",
    "offsets.topic.num.partitions": "2",
}


@pytest.fixture(scope="module")
def node() -> Iterator[ClusterNode]:
    with running_cluster(brokers=1, properties=PROPERTIES) as cluster:
        yield cluster.brokers[0]


@pytest.fixture
def admin(node: ClusterNode) -> AdminClient:
    return AdminClient({"bootstrap.servers": node.bootstrap_server, "log_level": 0})


@pytest.fixture
def topic(admin: AdminClient) -> str:
    name = f"odd-{next(_numbers)}"
    admin.create_topics([NewTopic(name, 4, 1)])[name].result(PATIENCE_S)
    return name


@pytest.fixture(autouse=True)
def node_goes_on(node: ClusterNode, topic: str, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever happened to one group, another one reads and commits."""
    caplog.set_level(logging.CRITICAL, logger=QUIET)
    yield
    write(node, topic, 1)
    with consumer(node, f"beside-{topic}", "classic") as beside:
        beside.subscribe([topic])
        eventually(lambda: read_some(beside), "another group reads")
        assert beside.commit(asynchronous=False)


def write(node: ClusterNode, topic: str, count: int, *, timestamp_ms: int = 0) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap_server, "log_level": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=timestamp_ms or int(time.time() * 1000))
    assert producer.flush(PATIENCE_S) == 0


@contextmanager
def consumer(
    node: ClusterNode, group: str, protocol: str, *, on_error: Callable[[object], None] = lambda error: None
) -> Iterator[Consumer]:
    made = Consumer(
        {
            "bootstrap.servers": node.bootstrap_server,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "error_cb": on_error,
            "log_level": 0,
        }
    )
    try:
        yield made
    finally:
        made.close()


def read_some(consumer: Consumer) -> bool:
    message = consumer.poll(0.1)
    return message is not None and message.error() is None


def eventually(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S:.0f} s"
        time.sleep(0.02)


class Overlapping(RangePartitionAssignor):  # type: ignore[misc]
    """Gives everything to everybody."""

    name = "overlapping"

    @classmethod
    def assign(cls, cluster, members):  # type: ignore[no-untyped-def]
        topics = {topic for member in members for topic in member.metadata.topics}
        everything = [(topic, sorted(cluster.partitions_for_topic(topic) or ())) for topic in sorted(topics)]
        return {member.member_id: ConsumerProtocolAssignment(0, everything, b"") for member in members}


class Silent(RangePartitionAssignor):  # type: ignore[misc]
    """Says nothing of what its member subscribes to."""

    name = "silent"

    @classmethod
    def metadata(cls, topics):  # type: ignore[no-untyped-def]
        return b""


class Member(threading.Thread):
    """kafka-python's consumer, in a thread of its own: it polls for as long as it is let."""

    def __init__(self, node: ClusterNode, group: str, topic: str, *assignors: type) -> None:
        super().__init__(daemon=True)
        self._consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=node.bootstrap_server,
            group_id=group,
            partition_assignment_strategy=assignors or (RangePartitionAssignor,),
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=300,
        )
        self.polls = threading.Event()
        self.polls.set()
        self.stopping = threading.Event()
        self.rounds = 0
        self.failures: list[BaseException] = []

    def run(self) -> None:
        while not self.stopping.is_set():
            if self.polls.wait(0.05):
                try:
                    self._consumer.poll(50)
                except kafka.errors.KafkaError as failure:
                    self.failures.append(failure)
                self.rounds += 1
        self._consumer.close()

    def held(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def end(self) -> None:
        self.stopping.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()
        del self._consumer
        forget_sockets()


def refused_or_in(consumer: Consumer, failures: list[object]) -> bool:
    """Whether a newcomer has been told something: that it cannot come in, or what it gets."""
    message = consumer.poll(0.1)
    return bool(failures or consumer.assignment() or (message is not None and message.error() is not None))


def test_classic_members_that_hold_the_same_and_one_of_the_new_protocol(node: ClusterNode, topic: str) -> None:
    members = [Member(node, f"over-{topic}", topic, Overlapping) for _ in range(2)]
    for each in members:
        each.start()
    try:
        eventually(lambda: [len(each.held()) for each in members] == [4, 4], "both have everything")
        failures: list[object] = []
        with consumer(node, f"over-{topic}", "consumer", on_error=failures.append) as late:
            late.subscribe([topic])
            eventually(lambda: refused_or_in(late, failures), "it is told something")
        rounds = [each.rounds for each in members]
        eventually(
            lambda: all(each.rounds > before + 5 for each, before in zip(members, rounds, strict=True)), "they go on"
        )
        node.kill()
        node.start()
    finally:
        for each in members:
            each.end()


def test_a_second_protocol_without_metadata_is_chosen_when_the_last_of_the_new_protocol_leaves(
    node: ClusterNode, admin: AdminClient, topic: str
) -> None:
    group = f"silent-{topic}"
    members = [
        Member(node, group, topic, first, Silent) for first in (RangePartitionAssignor, RoundRobinPartitionAssignor)
    ]

    def group_type() -> str:
        return str(admin.describe_consumer_groups([group])[group].result(PATIENCE_S).type.name)

    try:
        members[0].start()
        eventually(lambda: len(members[0].held()) == 4, "it has everything")
        failures: list[object] = []
        with consumer(node, group, "consumer", on_error=failures.append) as late:
            late.subscribe([topic])
            eventually(lambda: refused_or_in(late, failures), "it is told something")
            members[1].start()
            eventually(lambda: refused_or_in(late, failures) and members_of(admin, group) == 3, "all are in")
        eventually(lambda: group_type() == "CLASSIC", "it is a classic group again")
        node.kill()
        node.start()
    finally:
        for each in members:
            each.end()


def test_partitions_of_a_topic_that_was_made_anew_with_fewer(node: ClusterNode, admin: AdminClient, topic: str) -> None:
    """Whoever holds four of them meets one of the new protocol when there are two."""
    member = Member(node, f"shrunk-{topic}", topic)
    member.start()
    try:
        eventually(lambda: len(member.held()) == 4, "it has everything")
        member.polls.clear()
        admin.delete_topics([topic])[topic].result(PATIENCE_S)
        eventually(lambda: topic not in admin.list_topics(timeout=PATIENCE_S).topics, "it is gone")
        admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(PATIENCE_S)
        failures: list[object] = []
        with consumer(node, f"shrunk-{topic}", "consumer", on_error=failures.append) as late:
            late.subscribe([topic])
            eventually(lambda: refused_or_in(late, failures) or members_of(admin, f"shrunk-{topic}") == 2, "it is in")
            member.polls.set()
            eventually(lambda: refused_or_in(late, failures), "it is told something")
    finally:
        member.polls.set()
        member.end()


def members_of(admin: AdminClient, group: str) -> int:
    return len(admin.describe_consumer_groups([group])[group].result(PATIENCE_S).members)


def test_a_bad_expression_keeps_nobody_who_joins_waiting(node: ClusterNode, topic: str) -> None:
    group = f"regex-{topic}"
    first, second = (Member(node, group, topic) for _ in range(2))
    first.start()
    eventually(lambda: len(first.held()) == 4, "the first has everything")
    first.polls.clear()
    second.start()
    try:
        admin = AdminClient({"bootstrap.servers": node.bootstrap_server, "log_level": 0})

        def rebalances() -> bool:
            described = admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
            return str(described.state.name) == "PREPARING_REBALANCING"

        eventually(rebalances, "the second waits for the first")
        failures: list[object] = []
        with consumer(node, group, "consumer", on_error=failures.append) as late:
            late.subscribe([BAD_EXPRESSION])
            eventually(lambda: refused_or_in(late, failures), "it is told something")
        first.polls.set()
        eventually(lambda: sorted(len(each.held()) for each in (first, second)) == [2, 2], "both have their share")
    finally:
        first.polls.set()
        for each in (first, second):
            each.end()


def test_a_recreated_topic_inherits_no_offsets(node: ClusterNode, admin: AdminClient, topic: str) -> None:
    write(node, topic, 10)
    with consumer(node, f"heir-{topic}", "classic") as asking:
        places = [TopicPartition(topic, index) for index in range(4)]
        asking.commit(offsets=[TopicPartition(topic, index, 7) for index in range(4)], asynchronous=False)
        assert [each.offset for each in asking.committed(places, timeout=PATIENCE_S)] == [7] * 4
        deleting = admin.delete_topics([topic])[topic]
        deleting.result(PATIENCE_S)
        eventually(lambda: created(admin, topic), "it is made anew")
        eventually(
            lambda: [each.offset for each in asking.committed(places, timeout=PATIENCE_S)] == [NO_OFFSET] * 4,
            "it has no offsets",
        )


def created(admin: AdminClient, topic: str) -> bool:
    try:
        admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(PATIENCE_S)
    except KafkaException:
        return False
    return True


def test_a_group_whose_deletion_is_refused_stays(node: ClusterNode, admin: AdminClient) -> None:
    """Its offsets do not fit into a batch of the log, until they do."""
    topic, group = f"many-{next(_numbers)}", f"large-{next(_numbers)}"
    admin.create_topics([NewTopic(topic, 60, 1)])[topic].result(PATIENCE_S)
    with consumer(node, group, "classic") as asking:
        places = [TopicPartition(topic, index, 5) for index in range(60)]
        for start in range(0, 60, 10):
            asking.commit(offsets=places[start : start + 10], asynchronous=False)
        configure(admin, OFFSETS_TOPIC, "max.message.bytes", "500")
        with pytest.raises(KafkaException):
            admin.delete_consumer_groups([group], request_timeout=5)[group].result(PATIENCE_S)
        listed = admin.list_consumer_groups().result(PATIENCE_S)
        assert group in [each.group_id for each in listed.valid]
        assert {each.offset for each in asking.committed(places, timeout=PATIENCE_S)} == {5}
        configure(admin, OFFSETS_TOPIC, "max.message.bytes", "1048588")
        admin.delete_consumer_groups([group])[group].result(PATIENCE_S)
        assert {each.offset for each in asking.committed(places, timeout=PATIENCE_S)} == {NO_OFFSET}


def test_a_lower_segment_ms_lets_old_records_go(node: ClusterNode, admin: AdminClient, topic: str) -> None:
    configure(admin, topic, "retention.ms", "600000")
    hour_ms = 3_600_000
    write(node, topic, 10, timestamp_ms=int(time.time() * 1000) - hour_ms // 12)  # Not expired yet.
    configure(admin, topic, "segment.ms", "100")
    configure(admin, topic, "retention.ms", "200000")
    write(node, topic, 1)
    with consumer(node, f"looks-{topic}", "classic") as looking:
        place = TopicPartition(topic, 0)
        eventually(lambda: looking.get_watermark_offsets(place, timeout=PATIENCE_S)[0] == 10, "the old ones are gone")


def configure(admin: AdminClient, topic: str, name: str, text: str) -> None:
    entry = ConfigEntry(name, text, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
