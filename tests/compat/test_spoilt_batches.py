"""Spoilt batches, in every version of Produce, to a real node.

The recorded answers are Apache Kafka's, and whatever was taken every client reads to the end.
"""

from __future__ import annotations

import pytest
from bench import wire
from bench.servers import Server
from tests.compat.brokers import IS_KAFKA
from tests.compat.clients import JAVA, PYTHON_CLIENTS, Client
from tests.spoilt.batches import NAMES, Case
from tests.spoilt.record import ask, made_topics, recorded
from tests.spoilt.unlike_kafka import expected

pytestmark = pytest.mark.compat

NAMES_AS_BYTES = "header-name-not-utf-8"
"""Of a header: taken, as by Apache Kafka, though clients of Python stop there."""


def is_for(client: Client, case: Case) -> bool:
    codec = ("none", *NAMES[1:])[case.batch[22] & 7] if len(case.batch) > 22 and case.batch[22] & 7 < 5 else "none"
    return NAMES_AS_BYTES not in case.name and codec in client.compressions


def test_every_batch_in_every_version(server: Server) -> None:
    known = {each.case.name: each for each in recorded()}
    for case, answers in ask(server.port, made_topics(server.port, "all"), (each.case for each in known.values())):
        wanted = known[case.name].answers
        if not IS_KAFKA:
            wanted = {version: expected(case, answer) for version, answer in wanted.items()}
        assert answers == wanted, case.name


@pytest.mark.java
def test_the_recorded_answers_are_those_of_apache_kafka(apache_kafka: Server) -> None:
    known = {each.case.name: each for each in recorded()}
    topics = made_topics(apache_kafka.port, "kafka")
    for case, answers in ask(apache_kafka.port, topics, (each.case for each in known.values())):
        assert answers == known[case.name].answers, case.name


@pytest.mark.skipif(IS_KAFKA, reason="Apache Kafka takes batches that stop some clients (ADR 22)")
@pytest.mark.parametrize("client", [*PYTHON_CLIENTS, pytest.param(JAVA, marks=pytest.mark.java)], ids=repr)
def test_what_was_taken_is_read_to_the_end(server: Server, client: Client) -> None:
    topics = made_topics(server.port, repr(client))
    for topic in ("plain", "gzip"):
        sent = [case for case, _ in recorded() if case.topic == topic and is_for(client, case)]
        for _ in ask(server.port, topics, sent, versions=(13,)):
            pass
        with wire.Connection(server.port) as connection:
            ((_, error, end_offset),) = wire.list_offsets(connection, topics[topic], [0], wire.LATEST)
        assert not error
        assert end_offset > 10
        read = client.consume(server.bootstrap, topics[topic], {0: 0}, end_offset)
        assert [offset for offset, _ in read] == list(range(end_offset))
