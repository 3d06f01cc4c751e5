"""Nodes of Odradek and of Apache Kafka in one cluster: brokers under the other's controller, and quorums of both."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from bench import wire
from bench.apache_kafka import ApacheKafka
from bench.clusters import Cluster, Member, wait_for_leaders, wait_for_replicas
from bench.servers import OdradekServer, Server
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from tests.compat.clients import CONFLUENT, ProducerSettings, Record
from tests.compat.transactional import TRANSACTIONAL_CLIENTS, end

from odradek.coordinator.record_format import partition_for

pytestmark = [pytest.mark.compat, pytest.mark.java]
slow = pytest.mark.slow

CONTROLLER, BROKER, BOTH = ("controller",), ("broker",), ("broker", "controller")

# A cluster may only work with what all of its nodes serve, and Odradek has no such coordinators yet.
NOT_SERVED = ("share.version=0", "streams.version=0")
TRANSACTIONAL = TRANSACTIONAL_CLIENTS[0]


def apache(roles: tuple[str, ...]) -> Member:
    return Member(ApacheKafka, roles, tuple(word for level in NOT_SERVED for word in ("--feature", level)))


def odradek(roles: tuple[str, ...]) -> Member:
    return Member(OdradekServer, roles)


def test_odradek_brokers_under_an_apache_kafka_controller(tmp_path: Path) -> None:
    members = [apache(CONTROLLER), odradek(BROKER), odradek(BROKER)]
    with Cluster(members, directory=tmp_path) as cluster:
        records = write_replicated(cluster, "over-here", replicas=2)
        assert_read_everywhere(cluster, "over-here", records)
        assert_survives(cluster, "over-here", records, lost=cluster.server(2))


@slow
def test_killed_odradek_brokers_have_lost_nothing_to_an_apache_kafka_controller(tmp_path: Path) -> None:
    """All are killed at once, and any two are enough to lead again: one of them was in sync or is eligible."""
    members = [apache(CONTROLLER), odradek(BROKER), odradek(BROKER), odradek(BROKER)]
    with Cluster(members, directory=tmp_path) as cluster:
        records = write_replicated(cluster, "killed", replicas=3)
        two = ConfigEntry("min.insync.replicas", "2", incremental_operation=AlterConfigOpType.SET)
        topic = ConfigResource(ConfigResource.Type.TOPIC, "killed", incremental_configs=[two])
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.incremental_alter_configs([topic])[topic].result(60)
        for server in cluster.brokers:
            server.kill()
        returning = cluster.brokers[:2]
        for server in returning:
            server.spawn()
        wait_for_leaders(returning, ["killed"], partitions=3, deadline=time.monotonic() + 120)
        assert_read(returning[0].bootstrap, "killed", records)
        for server in returning:
            assert "and told that nothing of epoch" in server.log_tail(1_000_000)


@slow
def test_apache_kafka_brokers_under_an_odradek_controller(tmp_path: Path) -> None:
    members = [odradek(CONTROLLER), apache(BROKER), apache(BROKER)]
    with Cluster(members, directory=tmp_path) as cluster:
        records = write_replicated(cluster, "over-there", replicas=2)
        assert_read_everywhere(cluster, "over-there", records)
        assert_survives(cluster, "over-there", records, lost=cluster.server(2))
        for server in cluster.brokers:
            assert "ERROR" not in server.log_tail(1_000_000), server.log_tail()


@slow
def test_replicas_of_both_kinds_follow_each_other(tmp_path: Path) -> None:
    members = [apache(BOTH), odradek(BROKER), apache(BROKER)]
    with Cluster(members, directory=tmp_path) as cluster:
        # Six partitions on three brokers: each kind leads some and follows the other in the rest.
        records = write_replicated(cluster, "side-by-side", replicas=3, partitions=6)
        assert_read_everywhere(cluster, "side-by-side", records)
        assert_survives(cluster, "side-by-side", records, lost=cluster.server(3))


@slow
@pytest.mark.parametrize("apaches", [1, 2])
def test_a_quorum_of_both_kinds(tmp_path: Path, apaches: int) -> None:
    """Every voter is lost once: what was decided before is known after, whoever leads."""
    members = [apache(BOTH)] * apaches + [odradek(BOTH)] * (3 - apaches)
    with Cluster(members, directory=tmp_path) as cluster:
        records = write_replicated(cluster, "decided", replicas=3)
        leaders = [cluster.controller()]
        for lost in cluster.servers:
            lost.kill()
            create_topic(cluster.others(lost.seat.node_id), f"decided-{lost.seat.node_id}", replicas=2)
            lost.spawn()
            cluster.wait_until_whole()
            leaders.append(cluster.controller())
        assert len(set(leaders)) > 1, leaders
        topics = ["decided", *(f"decided-{server.seat.node_id}" for server in cluster.servers)]
        for server in cluster.servers:
            wait_for_replicas(server, topics, time.monotonic() + 60)
        assert_read_everywhere(cluster, "decided", records)


@slow
def test_transactions_over_brokers_of_both_kinds(tmp_path: Path) -> None:
    """Coordinators and leaders are of both kinds, and each broker is lost once while transactions are open."""
    members = [odradek(CONTROLLER), apache(BROKER), odradek(BROKER), odradek(BROKER)]
    topics = ["across", "__transaction_state"]
    places = [("across", index) for index in range(6)]
    with Cluster(members, directory=tmp_path, properties={"transaction.state.log.num.partitions": "6"}) as cluster:
        create_topic(cluster.brokers, "across", replicas=3, partitions=6)
        wait_for_leaders(cluster.brokers, ["across"], partitions=6, deadline=time.monotonic() + 30)
        producers = [TRANSACTIONAL.producer(cluster.bootstrap, name, 120_000) for name in ids_of_each_partition(6)]
        with wire.Connection(cluster.brokers[0].port) as connection:
            for topic in topics:
                leaders = {state.leader for state in wire.partition_states(connection, [topic]).values()}
                assert leaders == {2, 3, 4}, topic
        committed = []
        for turn, lost in enumerate(cluster.brokers):
            for number, producer in enumerate(producers):
                producer.begin()
                for place in places:
                    producer.send(place, b"%d/%d" % (turn, number))
            lost.kill()
            remaining = [server for server in cluster.brokers if server is not lost]
            wait_for_leaders(remaining, topics, partitions=12, deadline=time.monotonic() + 60)
            for number, producer in enumerate(producers):
                if (turn + number) % 2:
                    producer.abort()
                else:
                    producer.commit()
                    committed += [b"%d/%d" % (turn, number)] * len(places)
            lost.spawn()
            cluster.wait_until_whole()
            for server in cluster.brokers:
                wait_for_replicas(server, topics, time.monotonic() + 60)
        for producer in producers:
            producer.close()
        end(cluster.bootstrap, places)
        for server in cluster.brokers:
            assert TRANSACTIONAL.read_all(server.bootstrap, places) == sorted(committed)


def ids_of_each_partition(partitions: int) -> list[str]:
    """Transactional ids, one for each partition of `__transaction_state`."""
    found: dict[int, str] = {}
    for number in itertools.count():
        if len(found) == partitions:
            return list(found.values())
        found.setdefault(partition_for(f"across-{number}", partitions), f"across-{number}")
    raise AssertionError


def create_topic(brokers: Sequence[Server], topic: str, *, replicas: int, partitions: int = 3) -> None:
    """Through whichever of the brokers answers; a controller that was just lost may take a while to be replaced."""
    deadline, error = time.monotonic() + 60, -1
    while error not in (0, wire.TOPIC_ALREADY_EXISTS) and time.monotonic() < deadline:
        try:
            with wire.Connection(brokers[0].port, timeout_s=40) as connection:
                error = wire.create_topic(connection, topic, partitions, replicas=replicas)
        except (OSError, wire.ConnectionClosed):
            time.sleep(0.1)
    assert error in (0, wire.TOPIC_ALREADY_EXISTS), f"error {error}\n{brokers[0].log_tail()}"


def write_replicated(cluster: Cluster, topic: str, *, replicas: int, partitions: int = 3) -> list[Record]:
    """A few records in each partition, acknowledged by all replicas."""
    create_topic(cluster.brokers, topic, replicas=replicas, partitions=partitions)
    wait_for_leaders(cluster.brokers, [topic], partitions=partitions, deadline=time.monotonic() + 30)
    for server in cluster.brokers:
        wait_for_replicas(server, [topic], time.monotonic() + 30)
    return write(cluster.bootstrap, topic, partitions)


def write(bootstrap: str, topic: str, partitions: int) -> list[Record]:
    # Of today: half a minute after its start Apache Kafka deletes what is older than a week.
    now_ms = int(time.time() * 1000)
    records = [Record(number % partitions, now_ms, b"%d" % number, b"v%d" % number) for number in range(300)]
    CONFLUENT.produce(bootstrap, topic, records, ProducerSettings())
    return records


def assert_read_everywhere(cluster: Cluster, topic: str, records: list[Record]) -> None:
    for server in cluster.brokers:
        assert_read(server.bootstrap, topic, records)


def assert_read(bootstrap: str, topic: str, records: list[Record]) -> None:
    partitions = sorted({record.partition for record in records})
    read = CONFLUENT.consume(bootstrap, topic, dict.fromkeys(partitions, 0), len(records))
    wanted = sorted((record.partition, record.value) for record in records)
    assert sorted((record.partition, record.value) for _, record in read) == wanted


def assert_survives(cluster: Cluster, topic: str, records: list[Record], *, lost: Server) -> None:
    """kill -9 of a broker: the others lead what it led; it comes back and follows."""
    partitions = len({record.partition for record in records})
    lost.kill()
    remaining = [server for server in cluster.brokers if server is not lost]
    wait_for_leaders(remaining, [topic], partitions=partitions, deadline=time.monotonic() + 60)
    assert_read(remaining[0].bootstrap, topic, records)
    lost.spawn()
    cluster.wait_until_whole()
    for server in cluster.brokers:
        wait_for_replicas(server, [topic], time.monotonic() + 60)
    more = write(cluster.bootstrap, topic, partitions)
    assert_read_everywhere(cluster, topic, records + more)


@slow
def test_a_broker_that_lacks_what_the_cluster_works_with_says_so(tmp_path: Path) -> None:
    members = [Member(ApacheKafka, CONTROLLER), odradek(BROKER)]
    # It may be refused before it has read what the cluster works with.
    missing = r"does not serve, (.*share\.version=1 \(served: 0 to 0\)|which it does not know yet)"
    with pytest.raises(RuntimeError, match=missing):
        Cluster(members, directory=tmp_path).__enter__()
