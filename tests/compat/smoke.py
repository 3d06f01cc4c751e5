"""What a client library must be able to do with a node, told once for all languages (`PROGRAMS` in members.py)."""

from __future__ import annotations

import itertools
import json
import os
import subprocess

from bench.servers import Server
from tests.compat.clients import CONFLUENT, ProducerSettings, Record
from tests.compat.members import PROGRAMS, Member, share, until

from odradek.client.producer.partitioners import partition_of_key

PARTITIONS = 4
RECORDS = 100
BASE_MS = 1_700_000_000_000
PROGRAM_TIMEOUT_S = 60

_numbers = itertools.count()


def administers(client: str, server: Server) -> None:
    """A topic is created, refused a second time, described with its settings and ends, and deleted."""
    seen = json.loads(_run(client, "admin", server.bootstrap, f"smoke-{os.getpid()}-{next(_numbers)}"))
    assert seen == {
        "created": True,
        "createdAgain": False,
        "partitions": [0, 1, 2],
        "leaders": [1, 1, 1],
        "retention": "3600000",
        "ends": [0, 0, 0],
        "brokers": 1,
    }, seen


def produces(client: str, server: Server, topic: str) -> None:
    """Another library reads the records, each where the Java client would have put it, partitions in order."""
    _run(client, "produce", server.bootstrap, topic, str(RECORDS))
    read = CONFLUENT.consume(server.bootstrap, topic, dict.fromkeys(range(PARTITIONS), 0), RECORDS)
    expected: list[tuple[int, int, bytes, bytes]] = []
    ends = [0] * PARTITIONS
    for number in range(RECORDS):
        key = b"key-%d" % number
        partition = partition_of_key(key, PARTITIONS)
        expected.append((partition, ends[partition], key, b"value-%d" % number))
        ends[partition] += 1
    assert sorted((each.partition, offset, each.key, each.value) for offset, each in read) == sorted(expected)
    assert all(each.headers == (("number", (each.key or b"").removeprefix(b"key-")),) for _, each in read)


def shares_a_group(client: str, server: Server, topic: str, members: list[Member]) -> None:
    """Two members share the partitions and read all records; what a killed one owned, the other takes over."""

    def join() -> Member:
        members.append(Member(client, server.bootstrap, f"{topic}-group", topic, session_ms="3000"))
        return members[-1]

    first, second = join(), join()
    share(PARTITIONS, first, second)
    records = [Record(number % PARTITIONS, BASE_MS + number, None, b"%d" % number) for number in range(RECORDS)]
    CONFLUENT.produce(server.bootstrap, topic, records, ProducerSettings())
    everything = {(index, offset) for index in range(PARTITIONS) for offset in range(RECORDS // PARTITIONS)}
    until(lambda: {*first.read, *second.read} >= everything, first, second)
    assert {*first.read, *second.read} == everything
    second.kill()
    share(PARTITIONS, first)
    CONFLUENT.produce(server.bootstrap, topic, records, ProducerSettings())
    new = {(index, offset + RECORDS // PARTITIONS) for index, offset in everything}
    until(lambda: set(first.read) >= new, first)
    assert {*first.read, *second.read} == everything | new
    first.leave()


def _run(client: str, *words: str) -> str:
    outcome = subprocess.run(
        PROGRAMS[client](*words), capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S, check=False
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome.stdout
