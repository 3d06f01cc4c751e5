"""A steady stream of acks=all records to one partition, and the longest time nothing was acknowledged."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise

from confluent_kafka import KafkaError, Message, Producer

from bench import wire
from bench.servers import Server

SEND_EVERY_S = 0.005
LOOK_AGAIN_S = 0.002
GIVE_UP_S = 45.0
RECOVERED_AFTER = 100
IN_FLIGHT_TIMEOUT_S = 2.0


class Stream:
    """Acknowledgements as they come, by a thread that goes on until it is told to stop."""

    def __init__(self, run: Callable[[Stream], None]) -> None:
        self.times: list[float] = []
        self.stopped = threading.Event()
        self.failure: BaseException | None = None
        self._run = run
        self._thread = threading.Thread(target=self._main, daemon=True)

    def longest_gap(self, fault: Callable[[], None]) -> float:
        """What the fault costs: the longest time without an acknowledgement around it and after it."""
        self._wait_for(len(self.times) + RECOVERED_AFTER)
        known = len(self.times)
        fault()
        happened = time.monotonic()
        while not any(at > happened + 0.5 for at in self.times[-1:]) or len(self.times) < known + RECOVERED_AFTER:
            self._check(happened)
        # Clients that know of the fault only at their next request, and rebalanced leaders, are part of what it costs.
        self._wait_for(len(self.times) + RECOVERED_AFTER)
        return max(after - before for before, after in pairwise(self.times[known - 1 :]))

    def _wait_for(self, count: int) -> None:
        began = time.monotonic()
        while len(self.times) < count:
            self._check(began)

    def _check(self, began: float) -> None:
        if self.failure is not None:
            raise RuntimeError("the stream of records ended") from self.failure
        if time.monotonic() > began + GIVE_UP_S:
            raise RuntimeError(f"too few acknowledgements within {GIVE_UP_S} s: {len(self.times)} so far")
        time.sleep(0.01)

    def _main(self) -> None:
        try:
            self._run(self)
        except BaseException as error:  # noqa: BLE001  (told to whoever waits for acknowledgements)
            self.failure = error


@contextmanager
def flowing(run: Callable[[Stream], None]) -> Iterator[Stream]:
    """The stream, until the block ends."""
    stream = Stream(run)
    stream._thread.start()
    try:
        yield stream
    finally:
        stream.stopped.set()
        stream._thread.join(30)


def rdkafka(bootstrap: str, topic: str, partition: int) -> Callable[[Stream], None]:
    """librdkafka with its default settings, and so with its own waits between attempts."""

    def run(stream: Stream) -> None:
        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is None:
                stream.times.append(time.monotonic())
            elif not stream.stopped.is_set():
                raise RuntimeError(f"a record was not delivered: {error}")

        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "on_delivery": delivered, "log_level": 0})
        while not stream.stopped.is_set():
            producer.produce(topic, b"x" * 100, partition=partition)
            producer.poll(SEND_EVERY_S)
        producer.purge()
        producer.flush(5)

    return run


def impatient(servers: Sequence[Server], topic: str, partition: int) -> Callable[[Stream], None]:
    """A client that never waits before it tries again: what is left is the cluster's own doing."""

    def run(stream: Stream) -> None:
        ports = {server.seat.node_id: server.port for server in servers}
        while not stream.stopped.is_set():
            leader = _leader(servers, topic, partition)
            if leader not in ports:
                time.sleep(LOOK_AGAIN_S)
                continue
            with suppress(OSError, wire.ConnectionClosed):
                _send_while_it_leads(stream, ports[leader], topic, partition)

    return run


def _send_while_it_leads(stream: Stream, port: int, topic: str, partition: int) -> None:
    batch = wire.record_batch([b"x" * 100], timestamp_ms=int(time.time() * 1000))
    body = wire.produce_body(topic, [(partition, batch)], acks=-1)
    with wire.Connection(port, timeout_s=IN_FLIGHT_TIMEOUT_S) as connection:
        while not stream.stopped.is_set():
            ((_, error, _),) = wire.produce_errors(connection.request(wire.PRODUCE, 7, body))
            if error:
                time.sleep(LOOK_AGAIN_S)
                return
            stream.times.append(time.monotonic())
            time.sleep(SEND_EVERY_S)


def _leader(servers: Sequence[Server], topic: str, partition: int) -> int:
    # A broker that is cut off may name a leader of old: the next one asked knows better.
    for server in servers:
        with suppress(OSError, wire.ConnectionClosed), wire.Connection(server.port, timeout_s=0.5) as connection:
            return wire.partition_states(connection, [topic])[topic, partition].leader
    return -1
