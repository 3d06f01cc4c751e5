"""Clients nobody here wrote, at work while nodes are killed, held and cut off; what they saw becomes a history.

The history is the simulator's, and so are the checkers that judge it.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import threading
import time
from collections.abc import Callable, Iterator

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.sim import checkers
from odradek.sim.history import Acknowledged, Bounds, History, Partition, Read, Sent

PATIENCE_S = 60.0


class Load:
    """Idempotent producers with acks=all and a consumer on one topic."""

    def __init__(self, bootstrap_servers: str, topic: str, *, partitions: int, producers: int = 2) -> None:
        self.history = History(())
        self.topic = topic
        self._bootstrap_servers = bootstrap_servers
        self._partitions = partitions
        self._noting = threading.Lock()
        self._stopping = threading.Event()
        self.acknowledged = 0
        self.by_partition = [0] * partitions
        """How many are acknowledged in each."""
        self.longest_gap_s = 0.0
        """Between two acknowledgements, of whichever producer."""
        self._last_acknowledged = time.monotonic()
        self._failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(functools.partial(self._produce, f"p{number}"),), daemon=True)
            for number in range(producers)
        ]
        self._threads.append(threading.Thread(target=self._guarded, args=(self._consume,), daemon=True))

    def create_topic(self, *, replication_factor: int = 3, configs: dict[str, str] | None = None) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap_servers})
        new = NewTopic(self.topic, self._partitions, replication_factor, config=configs or {"min.insync.replicas": "2"})
        admin.create_topics([new])[self.topic].result(PATIENCE_S)

    def delete_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap_servers})
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
            self._stopping.set()
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
            self._stopping.wait(0.01)

    def pass_time(self, duration_s: float) -> None:
        """Let a fault last."""
        self._stopping.wait(duration_s)

    def verdict(self) -> list[str]:
        """Read everything once more, from the beginning to the end, and judge."""
        consumer = self._consumer("final")
        try:
            for index in range(self._partitions):
                self._read_to_the_end(consumer, index)
        finally:
            consumer.close()
        return checkers.check(self.history)

    # The clients.

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as failure:  # noqa: BLE001 - told to the test that waits for it
            self._failures.append(failure)

    def _produce(self, name: str) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "client.id": name,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": int(PATIENCE_S * 1000),
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        numbers = [0] * self._partitions
        while not self._stopping.is_set():
            for index in range(self._partitions):
                record = b"%s/%d/%s" % (name.encode(), numbers[index], b"x" * 40)
                numbers[index] += 1
                partition = Partition(self.topic, index)
                self._note(Sent(name, partition, (record,), again=False))
                producer.produce(self.topic, record, partition=index, on_delivery=self._delivered(name))
            producer.poll(0.005)
        left = producer.flush(PATIENCE_S)
        assert not left, f"{left} records of {name} were never answered"

    def _delivered(self, name: str) -> Callable[[confluent_kafka.KafkaError | None, confluent_kafka.Message], None]:
        def note(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
            assert error is None, error
            index, value = message.partition(), message.value()
            assert index is not None
            assert isinstance(value, bytes)
            offset = message.offset()
            if offset is None:
                offset = -1  # A batch that was sent again and is older than the last five: it is there, somewhere.
            now = time.monotonic()
            with self._noting:
                self.acknowledged += 1
                self.by_partition[index] += 1
                self.longest_gap_s = max(self.longest_gap_s, now - self._last_acknowledged)
                self._last_acknowledged = now
            self._note(Acknowledged(name, Partition(self.topic, index), offset, (value,), again=False))

        return note

    def _consumer(self, name: str) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "group.id": f"chaos-{name}",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def _consume(self) -> None:
        consumer = self._consumer("live")
        consumer.assign([confluent_kafka.TopicPartition(self.topic, index, 0) for index in range(self._partitions)])
        while not self._stopping.is_set():
            for message in consumer.consume(500, timeout=0.2):
                error = message.error()
                if error is not None:
                    assert error.retriable() or not error.fatal(), error
                    continue
                self._note_read("live", message)
        consumer.close()

    def _read_to_the_end(self, consumer: confluent_kafka.Consumer, index: int) -> None:
        start, end = self._bounds(consumer, index)
        partition = Partition(self.topic, index)
        self._note(Bounds(partition, start, end, asked_at=len(self.history.events), final=True))
        consumer.assign([confluent_kafka.TopicPartition(self.topic, index, start)])
        next_offset, until = start, time.monotonic() + PATIENCE_S
        while next_offset < end:
            assert time.monotonic() < until, f"{partition} could be read up to {next_offset} of {end}"
            for message in consumer.consume(1000, timeout=1.0):
                if message.error() is None:
                    next_offset = self._note_read("final", message, final=True) + 1

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

    def _note(self, event: Sent | Acknowledged | Read | Bounds) -> None:
        with self._noting:
            self.history.events.append(event)
