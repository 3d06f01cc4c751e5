"""Apache Kafka's Java Admin and Consumer ask everything a single node can answer."""

from __future__ import annotations

import os

import pytest
from bench.servers import Server
from tests.compat.java_programs import java_run

pytestmark = [pytest.mark.compat, pytest.mark.java]

# What Apache Kafka 4.3.1 answers; `COMPAT_SERVER=kafka` checks that.
EXPECTED = {
    "nodes": "1",
    "controller": "1",
    "cluster id": "22",
    "create": "ok",
    "create again": "TopicExistsException",
    "create defaults": "ok",
    "replication factor 2": "InvalidReplicationFactorException",
    "no partitions": "InvalidPartitionsException",
    "bad name": "InvalidTopicException",
    "dots": "InvalidTopicException",
    "250 letters": "InvalidTopicException",
    "bad config": "InvalidConfigurationException",
    "unknown config": "InvalidConfigurationException",
    "validate only": "ok",
    "validated was not made": "UnknownTopicOrPartitionException",
    "manual assignment": "ok",
    "assignment to nobody": "InvalidReplicaAssignmentException",
    "assignment with a gap": "InvalidReplicaAssignmentException",
    "describe a": "3 partitions, leaders ok, replicas 1, isr 1",
    "describe e": "2 partitions, leaders ok, replicas 1, isr 1",
    "describe by id": "3 partitions, leaders ok, replicas 1, isr 1",
    "describe unknown": "UnknownTopicOrPartitionException",
    "list": "a,b,e",
    "more partitions": "ok",
    "describe after more": "5 partitions, leaders ok, replicas 1, isr 1",
    "fewer partitions": "InvalidPartitionsException",
    "partitions of unknown": "UnknownTopicOrPartitionException",
    "earliest": "0",
    "latest": "5",
    "max timestamp": "2",
    "for timestamp 15": "1",
    "for timestamp 91": "-1",
    "empty max timestamp": "-1",
    "beginningOffsets": "0",
    "endOffsets": "5",
    "offsetsForTimes": "2 at 90",
    "partitionsFor": "5",
    "listTopics": "true",
    "read from 3": "3=40 4=50",
    "position": "5",
    "delete records": "true",
    "earliest after": "2",
    "delete beyond the end": "OffsetOutOfRangeException",
    "read below the start resets": "2=90 3=40 4=50",
    "delete all records": "ok",
    "earliest after all": "5",
    "delete": "ok",
    "delete again": "UnknownTopicOrPartitionException",
    "gone": "UnknownTopicOrPartitionException",
    "create once more": "ok",
    "latest of the new one": "0",
}


def test_admin_and_consumer_get_kafkas_answers(server: Server) -> None:
    outcome = java_run("AdminScenario", server.bootstrap, f"admin-{os.getpid()}-")
    answers = dict(line.split("\t", 1) for line in outcome.stdout.splitlines())
    assert answers == EXPECTED, outcome.stderr[-3_000:]
    assert outcome.exit_code == 0
