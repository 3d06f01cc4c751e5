"""Transactions of confluent-kafka, kafka-python and aiokafka, with one node and with three."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from tests.compat.brokers import created_topic, new_cluster, new_name, new_server
from tests.compat.java_programs import java_run
from tests.compat.patience import eventually
from tests.compat.transactional import (
    TRANSACTIONAL_CLIENTS,
    Place,
    Refused,
    TransactionalClient,
    TransactionalProducer,
    end,
)
from tests.leftovers import QUIET, forget_sockets

pytestmark = [
    pytest.mark.compat,
    # aiokafka and kafka-python leave sockets open whose connections failed.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.num.partitions": "5",
    "offsets.topic.num.partitions": "5",
}
PARTITIONS = 3


class Brokers(NamedTuple):
    """Where the clients go."""

    bootstrap: str
    create_topic: Callable[[str, int], object]

    def new_topic(self, partitions: int) -> str:
        name = new_name()
        self.create_topic(name, partitions)
        return name


@pytest.fixture(scope="module", params=["one-node", "three-nodes"])
def brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    directory = tmp_path_factory.mktemp("brokers")
    if request.param == "one-node":
        with new_server(directory, properties=PROPERTIES) as server:
            yield Brokers(server.bootstrap, lambda name, partitions: created_topic(server, partitions, {}, name))
    else:
        with new_cluster(directory, properties=PROPERTIES) as cluster:
            yield Brokers(cluster.bootstrap, functools.partial(cluster.create_topic, replicas=3))


@pytest.fixture(autouse=True)
def _sockets(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.CRITICAL, logger=QUIET)
    yield
    forget_sockets()


@pytest.fixture(params=TRANSACTIONAL_CLIENTS, ids=repr)
def client(request: pytest.FixtureRequest) -> TransactionalClient:
    found: TransactionalClient = request.param
    return found


@pytest.fixture
def places(brokers: Brokers) -> list[Place]:
    """The partitions of a new topic, whose name is a transactional id that nobody has, too."""
    topic = brokers.new_topic(PARTITIONS)
    return [(topic, index) for index in range(PARTITIONS)]


def send(producer: TransactionalProducer, places: list[Place], *values: int) -> None:
    for value in values:
        producer.send(places[value % len(places)], b"%04d" % value)


def write(producer: TransactionalProducer, places: list[Place], *values: int) -> None:
    """In a transaction of their own."""
    producer.begin()
    send(producer, places, *values)
    producer.commit()


def numbers(values: list[bytes]) -> list[int]:
    return [int(value) for value in values]


def test_every_client_sees_what_is_committed_and_nothing_else(
    brokers: Brokers, client: TransactionalClient, places: list[Place]
) -> None:
    with client.producing(brokers.bootstrap, places[0][0]) as producer:
        for begin in range(0, 60, 6):
            producer.begin()
            send(producer, places, *range(begin, begin + 6))
            if begin % 12:
                producer.abort()
            else:
                producer.commit()
        producer.begin()
        producer.commit()  # One that is empty.
        producer.begin()
        producer.abort()
        write(producer, places, 60)
    end(brokers.bootstrap, places)
    for reader in TRANSACTIONAL_CLIENTS:
        committed = reader.read_all(brokers.bootstrap, places)
        assert numbers(committed) == [number for number in range(61) if number % 12 < 6], reader
        assert numbers(reader.read_all(brokers.bootstrap, places, committed=False)) == list(range(61)), reader


def test_an_open_transaction_holds_back_readers_of_what_is_committed(
    brokers: Brokers, client: TransactionalClient, places: list[Place]
) -> None:
    place = places[0]
    with client.producing(brokers.bootstrap, place[0]) as producer:
        producer.begin()
        producer.send(place, b"1")
        with contextlib.closing(client.consumer(brokers.bootstrap, [place])) as consumer:
            assert consumer.end_offset(place) == 0
            assert consumer.poll() == []
            producer.commit()
            assert consumer.read(1) == [(place, 0, b"1")]
            eventually(lambda: consumer.end_offset(place), 2)


def test_a_later_producer_of_the_id_fences_the_earlier_one(
    brokers: Brokers, client: TransactionalClient, places: list[Place]
) -> None:
    with client.producing(brokers.bootstrap, places[0][0]) as zombie:
        zombie.begin()
        send(zombie, places, 0)
        # Aborts what the other has left open.
        with client.producing(brokers.bootstrap, places[0][0]) as heir:
            heir.begin()
            send(heir, places, 1)
            with pytest.raises(Refused):
                send(zombie, places, 2)
            with pytest.raises(Refused):
                zombie.commit()
            heir.commit()
        with contextlib.suppress(Refused):  # Some say so already here.
            zombie.abort()
        with pytest.raises(Refused):
            write(zombie, places, 3)
    end(brokers.bootstrap, places)
    assert numbers(client.read_all(brokers.bootstrap, places)) == [1]


def test_a_transaction_that_takes_too_long_is_aborted(
    brokers: Brokers, client: TransactionalClient, places: list[Place]
) -> None:
    place = places[0]
    with client.producing(brokers.bootstrap, place[0], timeout_ms=1_000) as producer:
        producer.begin()
        producer.send(place, b"1")
        with contextlib.closing(client.consumer(brokers.bootstrap, [place])) as consumer:
            eventually(lambda: consumer.end_offset(place), 2)
        with pytest.raises(Refused):
            producer.commit()
    end(brokers.bootstrap, places)
    assert client.read_all(brokers.bootstrap, places) == []
    assert client.read_all(brokers.bootstrap, places, committed=False) == [b"1"]


def test_a_timeout_above_the_brokers_maximum_is_refused(brokers: Brokers, client: TransactionalClient) -> None:
    with pytest.raises(Refused):
        client.producer(brokers.bootstrap, new_name(), 900_001)


def test_offsets_are_part_of_the_transaction(
    brokers: Brokers, client: TransactionalClient, places: list[Place]
) -> None:
    """Consume, transform, produce: output and position come together, or neither does."""
    source = (brokers.new_topic(1), 0)
    group = source[0]
    with client.producing(brokers.bootstrap, f"{group}-source") as producer:
        write(producer, [source], *range(20))
    done = 0
    with client.producing(brokers.bootstrap, group) as producer:
        for turn in range(4):
            with contextlib.closing(client.consumer(brokers.bootstrap, group=group, topic=source[0])) as consumer:
                records = consumer.read(1)[:7]
                assert records[0] == (source, done, b"%04d" % done)
                producer.begin()
                for number, (_, _, value) in enumerate(records):
                    producer.send(places[number % PARTITIONS], value)
                producer.send_offsets({source: records[-1][1] + 1}, consumer.group)
                if turn % 2:
                    producer.commit()
                    done += len(records)
                else:
                    producer.abort()
                # Not all wait, when they ask, for the marker that makes them real.
                eventually(functools.partial(consumer.committed, source), done or None)
    end(brokers.bootstrap, places)
    assert numbers(client.read_all(brokers.bootstrap, places)) == list(range(done))
    assert done


@pytest.mark.parametrize("client", [each for each in TRANSACTIONAL_CLIENTS if each.names_members], ids=repr)
def test_offsets_of_a_former_generation_are_refused(
    brokers: Brokers, client: TransactionalClient, places: list[Place]
) -> None:
    topic = places[0][0]
    with client.producing(brokers.bootstrap, f"{topic}-source") as producer:
        write(producer, places, *range(30))
    with client.producing(brokers.bootstrap, topic) as producer:
        with contextlib.closing(client.consumer(brokers.bootstrap, group=topic, topic=topic)) as zombie:
            zombie.read(1)
            stale = zombie.group
        with contextlib.closing(client.consumer(brokers.bootstrap, group=topic, topic=topic)) as consumer:
            consumer.read(1)
            producer.begin()
            with pytest.raises(Refused):
                producer.send_offsets({places[0]: 7}, stale)
            producer.abort()
            assert consumer.committed(places[0]) is None
            producer.begin()
            producer.send_offsets({places[0]: 5}, consumer.group)
            producer.commit()
            eventually(lambda: consumer.committed(places[0]), 5)


@pytest.mark.java
def test_transactions_of_the_java_client(brokers: Brokers, places: list[Place]) -> None:
    """It leaves it to brokers to add partitions, and its epoch rises with every transaction (KIP-890)."""
    topic, group = places[0][0], new_name()
    written = {
        number: [f"one send {number % PARTITIONS} {number}", f"one offsets {group} 0 {number}"] for number in range(6)
    }
    transactions = [
        ["one begin", *lines, "one abort" if number % 2 else "one commit"] for number, lines in written.items()
    ]
    # One that is empty, and a zombie that is fenced.
    after = ["one begin", "one commit", "one begin", "one send 0 6", f"two open {topic}", "two begin", "two send 1 7"]
    script = [f"one open {topic}", *(line for lines in transactions for line in lines), *after, "two commit"]
    refused = ["one commit", "one begin"]
    given = "".join(f"{line}\n" for line in [*script, *refused])
    outcome = java_run("TransactionPipe", brokers.bootstrap, topic, given=given)
    said = outcome.stdout.splitlines()
    assert said[: len(script)] == ["ok"] * len(script), outcome.said
    assert said[len(script) :] in (
        ["ProducerFencedException", "ProducerFencedException"],
        ["InvalidProducerEpochException", "KafkaException"],
    ), said
    end(brokers.bootstrap, places)
    for reader in TRANSACTIONAL_CLIENTS:
        assert numbers(reader.read_all(brokers.bootstrap, places)) == [0, 2, 4, 7], reader
    with contextlib.closing(TRANSACTIONAL_CLIENTS[0].consumer(brokers.bootstrap, group=group, topic=topic)) as consumer:
        assert consumer.committed(places[0]) == 4
