"""Requests of one connection are processed and answered in the order they came, however many are in flight."""

from __future__ import annotations

import threading
from collections.abc import Callable

from bench import wire
from bench.servers import Server

BASE_MS = 1_700_000_000_000


def test_answers_come_in_order_whatever_the_kind(server: Server, new_topic: Callable[..., str]) -> None:
    topic, empty = new_topic(), new_topic()
    sent = 300
    with wire.Connection(server.port) as connection:

        def send_all() -> None:
            for number in range(sent):
                kind = number % 4
                if kind == 0:
                    batch = wire.record_batch([b"%d" % number], timestamp_ms=BASE_MS)
                    acks = -1 if number % 8 else 1
                    connection.send(wire.PRODUCE, 7, wire.produce_body(topic, [(0, batch)], acks=acks))
                elif kind == 1:
                    connection.send(wire.FETCH, 11, wire.fetch_body(topic, [(0, 0)], max_bytes=1_000))
                elif kind == 2:
                    # Nothing to read: the answer is held back, and everything behind it must wait.
                    connection.send(wire.FETCH, 11, wire.fetch_body(empty, [(0, 0)], max_bytes=1_000, max_wait_ms=5))
                else:
                    connection.send(wire.METADATA, 5, wire.array([]) + b"\x00")

        sender = threading.Thread(target=send_all)
        sender.start()
        answers = [connection.receive().correlation_id for _ in range(sent)]
        sender.join()
    assert answers == list(range(1, sent + 1))


def test_what_is_sent_behind_a_waiting_fetch_waits(server: Server, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    with wire.Connection(server.port) as connection:
        connection.send(wire.FETCH, 11, wire.fetch_body(topic, [(0, 0)], max_bytes=1_000, max_wait_ms=300))
        connection.send(wire.METADATA, 5, wire.array([]) + b"\x00")
        assert [connection.receive().correlation_id for _ in range(2)] == [1, 2]


def test_many_produce_requests_in_flight_keep_their_order(server: Server, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    count = 2_000
    with wire.Connection(server.port) as connection:
        bodies = [
            wire.produce_body(
                topic, [(0, wire.record_batch([b"%d" % n], timestamp_ms=BASE_MS))], acks=-1 if n % 3 else 1
            )
            for n in range(count)
        ]
        sender = threading.Thread(target=lambda: [connection.send(wire.PRODUCE, 7, body) for body in bodies])
        sender.start()
        offsets = [wire.produce_errors(connection.receive()) for _ in range(count)]
        sender.join()
    assert offsets == [[(0, 0, n)] for n in range(count)]


def test_acks_0_is_not_answered_and_keeps_its_place(server: Server, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    with wire.Connection(server.port) as connection:
        for number in range(50):
            batch = wire.record_batch([b"%d" % number], timestamp_ms=BASE_MS)
            connection.send(wire.PRODUCE, 7, wire.produce_body(topic, [(0, batch)], acks=0 if number % 2 else 1))
        offsets = [wire.produce_errors(connection.receive())[0][2] for _ in range(25)]
    assert offsets == list(range(0, 50, 2))
