"""Ten thousand transactional ids, and a transaction over a thousand partitions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from bench import wire
from bench.measure import memory_mib
from tests.compat.brokers import created_topic, new_server, running

from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

IDS = 10_000
PIPELINED = 50
"""Requests sent on one connection before the first is answered."""
PARTITIONS = 1_000
PATIENCE_S = 60.0
VERSION = 1
"""Of requests, from before compact encoding."""
TRANSACTION_KEY = 1

PROPERTIES = {"transaction.state.log.num.partitions": "5"}


def test_ten_thousand_ids_survive_their_coordinator(tmp_path: Path) -> None:
    """Each has its own producer id, and goes on from its epoch at a broker that was killed and came back."""
    with running(new_server(tmp_path, properties=PROPERTIES)) as server:
        with wire.Connection(server.port) as connection:
            find_coordinator(connection)
            list(producers(connection, [0]))
            before, _ = memory_mib(server.pid)
            first = list(producers(connection, range(1, IDS)))
            during, _ = memory_mib(server.pid)
        assert {epoch for _, epoch in first} == {0}
        assert len({producer_id for producer_id, _ in first}) == IDS - 1
        assert during - before < 60, f"{before:.1f} MiB became {during:.1f} MiB"
        server.kill()
    with running(new_server(tmp_path, properties=PROPERTIES)) as server, wire.Connection(server.port) as connection:
        again = list(producers(connection, range(1, IDS)))
    assert again == [(producer_id, 1) for producer_id, _ in first]


def find_coordinator(connection: wire.Connection) -> None:
    """Whoever asks for it first has the topic made in which coordinators keep what they know."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        request = FindCoordinatorRequest(key="id-0", key_type=TRANSACTION_KEY)
        answer = connection.request(request.api_key, VERSION, encode(request, VERSION))
        if decode(FindCoordinatorResponse, VERSION, answer.data[answer.position :]).error_code == ErrorCode.NONE:
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def producers(connection: wire.Connection, numbers: range | list[int]) -> Iterator[tuple[int, int]]:
    """Producer id and epoch of each; many ask at once."""
    for begin in range(0, len(numbers), PIPELINED):
        asked = list(numbers[begin : begin + PIPELINED])
        deadline = time.monotonic() + PATIENCE_S
        found: dict[int, tuple[int, int]] = {}
        while asked:
            assert time.monotonic() < deadline, asked
            for number in asked:
                request = InitProducerIdRequest(transactional_id=f"id-{number}", transaction_timeout_ms=60_000)
                connection.send(request.api_key, VERSION, encode(request, VERSION))
            for number in tuple(asked):
                answer = connection.receive()
                told = decode(InitProducerIdResponse, VERSION, answer.data[answer.position :])
                if told.error_code == ErrorCode.NONE:
                    found[number] = told.producer_id, told.producer_epoch
                    asked.remove(number)
                else:  # Only while its coordinator starts.
                    assert told.error_code in (
                        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                        ErrorCode.COORDINATOR_NOT_AVAILABLE,
                        ErrorCode.NOT_COORDINATOR,
                    )
        for number in numbers[begin : begin + PIPELINED]:
            yield found[number]


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_transaction_over_a_thousand_partitions(commit: bool) -> None:
    with running(new_server(properties=PROPERTIES)) as server:
        topic = created_topic(server, PARTITIONS, {})
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": server.bootstrap, "transactional.id": "wide", "log_level": 0}
        )
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(topic, b"%d" % partition, partition=partition)
        producer.flush(PATIENCE_S)
        started = time.monotonic()
        (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE_S)
        with wire.Connection(server.port) as connection:
            while wire.list_offsets(connection, topic, range(PARTITIONS), wire.LATEST) != [
                (partition, 0, 2) for partition in range(PARTITIONS)
            ]:
                assert time.monotonic() < started + PATIENCE_S
                time.sleep(0.05)
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": server.bootstrap, "group.id": "unused", "enable.partition.eof": True}
        )
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
            values, ends = [], 0
            while ends < PARTITIONS:
                assert time.monotonic() < started + PATIENCE_S
                for message in consumer.consume(1_000, 0.2):
                    if message.error() is None:
                        values.append(int(message.value()))
                    else:
                        assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                        ends += 1
        finally:
            consumer.close()
        assert sorted(values) == (list(range(PARTITIONS)) if commit else [])
        server.kill()  # Nothing is worth being put on disk a thousand times.
