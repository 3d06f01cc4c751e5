"""Members of groups come, go, are killed and come back, with four client libraries against one node process."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

import pytest
from bench import wire
from bench.cells import wait_for_partitions
from bench.servers import Server
from tests.compat.brokers import new_server, running
from tests.compat.clients import CONFLUENT, ProducerSettings, Record
from tests.compat.members import QUICK_GROUPS, Member, come_and_go, share, until

pytestmark = pytest.mark.compat

JAVA = pytest.param("java", marks=pytest.mark.java)
CLIENTS = ["confluent-kafka", "kafka-python", "aiokafka", JAVA]
PARTITIONS = 4
BASE_MS = 1_700_000_000_000

_numbers = itertools.count()

NewMember = Callable[..., Member]


def new_topic(server: Server, partitions: int = PARTITIONS) -> str:
    name = f"groups-{os.getpid()}-{next(_numbers)}"
    with wire.Connection(server.port) as connection:
        assert wire.create_topic(connection, name, partitions, {}) == 0
        wait_for_partitions(connection, name, partitions)
    return name


def produce(server: Server, topic: str, count: int) -> None:
    records = [Record(number % PARTITIONS, BASE_MS + number, None, b"%d" % number) for number in range(count)]
    CONFLUENT.produce(server.bootstrap, topic, records, ProducerSettings())


@pytest.mark.parametrize("client", CLIENTS)
def test_partitions_follow_members(client: str, group_server: Server, members: list[Member]) -> None:
    """What is owned is always everything."""
    topic = new_topic(group_server)

    def join() -> Member:
        members.append(Member(client, group_server.bootstrap, f"{topic}-group", topic))
        return members[-1]

    come_and_go(PARTITIONS, join).leave()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_restarted_member_goes_on_where_it_had_committed(
    client: str, group_server: Server, members: list[Member]
) -> None:
    topic = new_topic(group_server)
    produce(group_server, topic, 40)
    everything = {(partition, offset) for partition in range(PARTITIONS) for offset in range(10)}
    first = Member(client, group_server.bootstrap, f"{topic}-group", topic)
    members.append(first)
    until(lambda: len(first.read) >= 40, first)
    assert sorted(first.read) == sorted(everything)
    first.kill()
    produce(group_server, topic, 20)
    second = Member(client, group_server.bootstrap, f"{topic}-group", topic)
    members.append(second)
    until(lambda: len(second.read) >= 20, second)
    second.leave()
    new = sorted((partition, offset) for partition in range(PARTITIONS) for offset in range(10, 15))
    again = [read for read in second.read if read not in new]
    assert sorted(read for read in second.read if read in new) == new
    # Only a record whose commit had not been answered when the member was killed may come twice.
    assert len(again) <= 1, again


@pytest.mark.parametrize(
    ("client", "strategy"),
    [
        ("confluent-kafka", "roundrobin"),
        ("confluent-kafka", "cooperative-sticky"),
        ("kafka-python", "sticky"),
        ("kafka-python", "cooperative-sticky"),
        ("aiokafka", "roundrobin"),
        ("aiokafka", "sticky"),
        pytest.param("java", "sticky", marks=pytest.mark.java),
        pytest.param("java", "cooperative-sticky", marks=pytest.mark.java),
    ],
)
def test_strategies(client: str, strategy: str, group_server: Server, members: list[Member]) -> None:
    topic = new_topic(group_server)
    for count in (1, 2, 3):
        members.append(Member(client, group_server.bootstrap, f"{topic}-group", topic, strategy=strategy))
        share(PARTITIONS, *members)
        assert len(members) == count
    first = members[0]
    if strategy == "cooperative-sticky":
        # What a member keeps is never taken from it meanwhile, so it has never owned nothing.
        held = first.changes[first.changes.index({0, 1, 2, 3}) :]
        assert all(held), first
    members[1].leave()
    share(PARTITIONS, members[0], members[2])


@pytest.mark.parametrize("client", CLIENTS)
def test_static_members_keep_their_place(client: str, group_server: Server, members: list[Member]) -> None:
    """Killed and started again within its session, a static member disturbs nobody."""
    topic = new_topic(group_server)

    def start(instance: str) -> Member:
        member = Member(client, group_server.bootstrap, f"{topic}-group", topic, instance=instance, session_ms="30000")
        members.append(member)
        return member

    one, two = start("one"), start("two")
    share(PARTITIONS, one, two)
    had, changes = two.owned, len(one.changes)
    two.kill()
    again = start("two")
    share(PARTITIONS, one, again)
    assert again.owned == had
    assert len(one.changes) == changes, one


@pytest.mark.parametrize("client", CLIENTS)
def test_a_group_survives_its_coordinator(client: str, members: list[Member]) -> None:
    with running(new_server(properties=QUICK_GROUPS)) as server:
        topic = new_topic(server)
        produce(server, topic, 20)
        member = Member(client, server.bootstrap, "survivors", topic, session_ms="20000")
        members.append(member)
        until(lambda: len(member.read) >= 20, member)
        server.kill()
        server.spawn()
        server.wait_until_ready()
        produce(server, topic, 20)
        until(lambda: len(set(member.read)) >= 40, member)
        assert len(member.read) == 40, member
        member.leave()


def test_clients_of_all_kinds_share_a_group(group_server: Server, members: list[Member]) -> None:
    """Range is what all of them speak."""
    topic = new_topic(group_server)
    for client in ("confluent-kafka", "kafka-python", "aiokafka"):
        members.append(Member(client, group_server.bootstrap, f"{topic}-group", topic))
        share(PARTITIONS, *members)
