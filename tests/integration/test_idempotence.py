"""Sequence numbers: a batch sent twice is kept once, a gap is refused, and a restart forgets nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bench import wire
from bench.cells import wait_for_partitions
from bench.servers import Server
from tests.compat.brokers import new_server, running

OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH = 45, 46, 47


class Producer:
    """Sends batches under one producer id with sequence numbers of the test's choice."""

    def __init__(self, connection: wire.Connection, topic: str) -> None:
        self.connection = connection
        self.topic = topic
        self.id, self.epoch = wire.init_producer_id(connection)

    def send(self, sequence: int, count: int = 1, *, epoch: int | None = None) -> tuple[int, int]:
        """(error code, base offset) of a batch of `count` records whose first has that sequence number."""
        batch = wire.record_batch(
            [b"%d" % (sequence + index) for index in range(count)],
            timestamp_ms=int(time.time() * 1000),  # the state of a producer expires a day after its last timestamp
            producer_id=self.id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
        )
        answer = self.connection.request(wire.PRODUCE, 7, wire.produce_body(self.topic, [(0, batch)], acks=-1))
        ((_, error, offset),) = wire.produce_errors(answer)
        return error, offset


def test_duplicates_gaps_and_old_epochs(server: Server, new_topic: Callable[..., str]) -> None:
    with wire.Connection(server.port) as connection:
        producer = Producer(connection, new_topic())
        assert [producer.send(sequence) for sequence in range(7)] == [(0, offset) for offset in range(7)]
        # The last five batches are known again, with the offset they got the first time.
        assert [producer.send(sequence) for sequence in range(2, 7)] == [(0, offset) for offset in range(2, 7)]
        error, _ = producer.send(1)
        assert error in (OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER)
        assert producer.send(9)[0] == OUT_OF_ORDER_SEQUENCE_NUMBER
        assert producer.send(7, 3) == (0, 7)
        assert producer.send(7, 3) == (0, 7)
        assert producer.send(7, 2)[0] == OUT_OF_ORDER_SEQUENCE_NUMBER
        assert producer.send(0, epoch=5) == (0, 10)
        assert producer.send(10)[0] == INVALID_PRODUCER_EPOCH
        assert wire.list_offsets(connection, producer.topic, [0], wire.LATEST) == [(0, 0, 11)]


def test_producer_ids_differ(server: Server) -> None:
    with wire.Connection(server.port) as connection:
        ids = [wire.init_producer_id(connection) for _ in range(50)]
    assert len({producer_id for producer_id, _ in ids}) == 50
    assert {epoch for _, epoch in ids} == {0}


@pytest.mark.parametrize("ending", ["clean stop", "kill -9"])
def test_a_restart_forgets_nothing(tmp_path: Path, ending: str) -> None:
    with running(new_server(tmp_path)) as first, wire.Connection(first.port) as connection:
        assert wire.create_topic(connection, "kept", 1) == 0
        wait_for_partitions(connection, "kept", 1)
        producer = Producer(connection, "kept")
        assert [producer.send(sequence) for sequence in range(8)] == [(0, offset) for offset in range(8)]
        if ending == "kill -9":
            first.kill()
    with running(new_server(tmp_path)) as second, wire.Connection(second.port) as connection:
        producer.connection = connection
        wait_for_partitions(connection, "kept", 1)
        assert producer.send(7) == (0, 7)
        # Of older batches a snapshot keeps nothing, so only the last one is sure to be known again.
        assert producer.send(12)[0] == OUT_OF_ORDER_SEQUENCE_NUMBER
        assert producer.send(8) == (0, 8)
        assert Producer(connection, "kept").id != producer.id
