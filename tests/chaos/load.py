"""Clients nobody here wrote, at work while nodes are killed, held and cut off; what they saw becomes a history.

The history is the simulator's, and so are the checkers that judge it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.sim import checkers
from odradek.sim.history import Acknowledged, Bounds, History, Partition, Read, Sent, TrimAnswered, TrimSent

PATIENCE_S = 60.0


Promise: TypeAlias = Callable[[History], list[str]]
ORDER: tuple[Promise, ...] = (checkers.producer_order.check, checkers.producer_state.check)
"""What only idempotent producers are promised."""


class Load:
    """Producers and a consumer on one topic; the producers are idempotent unless `settings` say otherwise.

    `writers` are other producers: each writes in a thread of its own, until `stopping` is set and all that it has sent
    is answered. `without` are promises that they were not given. `pause_s` is between two records of a partition.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        partitions: int,
        producers: int = 2,
        settings: Mapping[str, str | int | bool] | None = None,
        record_bytes: int = 40,
        pause_s: float = 0.005,
        writers: Sequence[Callable[[Load, str], None]] = (),
        without: Sequence[Promise] = (),
    ) -> None:
        self.history = History(())
        self.topic = topic
        self.bootstrap_servers = bootstrap_servers
        self.partitions = partitions
        self.stopping = threading.Event()
        self._settings = dict(settings or {})
        self._filling = b"x" * record_bytes
        self._pause_s = pause_s
        self._promises = [promise for promise in checkers.ALL if promise not in without]
        self._noting = threading.Lock()
        self.acknowledged = 0
        self.by_partition = [0] * partitions
        """How many are acknowledged in each."""
        self.longest_gap_s = 0.0
        """Between two acknowledgements, of whichever producer."""
        self._last_acknowledged = time.monotonic()
        self._failures: list[BaseException] = []
        written_by = [*writers] or [Load._produce] * producers
        self._threads = [
            threading.Thread(target=self._guarded, args=(functools.partial(write, self, f"p{number}"),), daemon=True)
            for number, write in enumerate(written_by)
        ]
        self._threads.append(threading.Thread(target=self._guarded, args=(self._consume,), daemon=True))

    def create_topic(self, *, replication_factor: int = 3, configs: dict[str, str] | None = None) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        new = NewTopic(self.topic, self.partitions, replication_factor, config=configs or {"min.insync.replicas": "2"})
        admin.create_topics([new])[self.topic].result(PATIENCE_S)

    def delete_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        admin.delete_topics([self.topic])[self.topic].result(PATIENCE_S)

    @contextlib.contextmanager
    def running(self) -> Iterator[Load]:
        """The load, for the time of the block; afterwards everything that was sent has been answered."""
        self._last_acknowledged = time.monotonic()
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self.stopping.set()
            for thread in self._threads:
                thread.join(2 * PATIENCE_S)
        assert not any(thread.is_alive() for thread in self._threads), "a client did not come to an end"
        assert not self._failures, self._failures

    def wait_for_acknowledged(self, count: int) -> None:
        """Until that many more records are acknowledged."""
        wanted = self.acknowledged + count
        self._wait(lambda: self.acknowledged >= wanted, f"{wanted} records")

    def wait_for_acknowledged_everywhere(self, count: int) -> None:
        """Until that many more records are acknowledged in every partition."""
        wanted = [known + count for known in self.by_partition]
        self._wait(lambda: all(map(operator.ge, self.by_partition, wanted)), f"{wanted} records of the partitions")

    def _wait(self, acknowledged: Callable[[], bool], wanted: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not acknowledged():
            assert time.monotonic() < until, f"not {wanted} were acknowledged, but {self.by_partition}"
            assert not self._failures, self._failures
            self.stopping.wait(0.01)

    def pass_time(self, duration_s: float) -> None:
        """Let a fault last."""
        self.stopping.wait(duration_s)

    @contextlib.contextmanager
    def trimming(self, index: int, before: int) -> Iterator[None]:
        """While somebody has all before an offset deleted."""
        number = len(self.history.events)
        self._note(TrimSent(Partition(self.topic, index), number, before))
        yield
        self._note(TrimAnswered(number))

    def verdict(self) -> list[str]:
        """Read everything once more, from the beginning to the end, and judge."""
        consumer = self._consumer("final")
        try:
            self._read_to_the_end(consumer)
        finally:
            consumer.close()
        return [broken for promise in self._promises for broken in promise(self.history)]

    # The clients.

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as failure:  # noqa: BLE001 - told to the test that waits for it
            self._failures.append(failure)

    def _produce(self, name: str) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "client.id": name,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": int(PATIENCE_S * 1000),
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                "topic.metadata.refresh.interval.ms": 1000,
                **self._settings,
            }
        )
        for index, record in self.records_of(name):
            producer.produce(self.topic, record, partition=index, on_delivery=self._delivered(name))
            if index == self.partitions - 1:
                producer.poll(0)
                self.stopping.wait(self._pause_s)
        left = producer.flush(PATIENCE_S)
        assert not left, f"{left} records of {name} were never answered"

    def records_of(self, name: str) -> Iterator[tuple[int, bytes]]:
        """What a producer of that name should write until it is time to stop: a partition and a record for it."""
        for number in itertools.count():
            for index in range(self.partitions):
                if self.stopping.is_set():
                    return
                record = b"%s/%d/%s" % (name.encode(), number, self._filling)
                self._note(Sent(name, Partition(self.topic, index), (record,), again=False))
                yield index, record

    def note_acknowledged(self, name: str, index: int, offset: int, record: bytes) -> None:
        now = time.monotonic()
        with self._noting:
            self.acknowledged += 1
            self.by_partition[index] += 1
            self.longest_gap_s = max(self.longest_gap_s, now - self._last_acknowledged)
            self._last_acknowledged = now
        self._note(Acknowledged(name, Partition(self.topic, index), offset, (record,), again=False))

    def _delivered(self, name: str) -> Callable[[confluent_kafka.KafkaError | None, confluent_kafka.Message], None]:
        def note(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
            assert error is None, error
            index, value = message.partition(), message.value()
            assert index is not None
            assert isinstance(value, bytes)
            offset = message.offset()
            # Without one, it is a batch that was sent again and is older than the last five: it is there, somewhere.
            self.note_acknowledged(name, index, -1 if offset is None else offset, value)

        return note

    def _consumer(self, name: str) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": f"chaos-{name}",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def _consume(self) -> None:
        consumer = self._consumer("live")
        consumer.assign([confluent_kafka.TopicPartition(self.topic, index, 0) for index in range(self.partitions)])
        while not self.stopping.is_set():
            for message in consumer.consume(500, timeout=0.2):
                error = message.error()
                if error is not None:
                    assert error.retriable() or not error.fatal(), error
                    continue
                self._note_read("live", message)
        consumer.close()

    def _read_to_the_end(self, consumer: confluent_kafka.Consumer) -> None:
        ends = {}
        starts = []
        for index in range(self.partitions):
            start, ends[index] = self._bounds(consumer, index)
            bounds = Bounds(
                Partition(self.topic, index), start, ends[index], asked_at=len(self.history.events), final=True
            )
            self._note(bounds)
            starts.append(confluent_kafka.TopicPartition(self.topic, index, start))
        consumer.assign(starts)
        reached = {each.partition: each.offset for each in starts}
        until = time.monotonic() + PATIENCE_S
        while missing := {index: (reached[index], end) for index, end in ends.items() if reached[index] < end}:
            assert time.monotonic() < until, f"partitions of {self.topic} could be read up to {missing}"
            for message in consumer.consume(1000, timeout=0.2):
                if message.error() is None:
                    index = message.partition()
                    assert index is not None
                    reached[index] = self._note_read("final", message, final=True) + 1

    def _bounds(self, consumer: confluent_kafka.Consumer, index: int) -> tuple[int, int]:
        """Where the partition starts and ends; this client does not ask again by itself while leaders change hands."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                start, end = consumer.get_watermark_offsets(
                    confluent_kafka.TopicPartition(self.topic, index), timeout=PATIENCE_S
                )
                return start, end
            except confluent_kafka.KafkaException:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def _note_read(self, name: str, message: confluent_kafka.Message, *, final: bool = False) -> int:
        offset, index, value = message.offset(), message.partition(), message.value()
        assert offset is not None
        assert index is not None
        assert isinstance(value, bytes)
        self._note(Read(name, Partition(self.topic, index), offset, (value,), final=final))
        return offset

    def _note(self, event: Sent | Acknowledged | Read | Bounds | TrimSent | TrimAnswered) -> None:
        with self._noting:
            self.history.events.append(event)
