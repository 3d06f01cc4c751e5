"""Transactions of three client libraries behind one face, as `clients.py` has it for records."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
from tests.compat.clients import CONFLUENT, ProducerSettings, Record

PATIENCE_S = 60.0
POLL_MS = 200
LAST = b"the last record"
"""Of each partition that is read to its end: control batches are no records, so no count says where that is."""

ResultT = TypeVar("ResultT")

Place = tuple[str, int]
"""A topic and the number of a partition."""


class Refused(Exception):
    """The library says that what was asked for did not happen."""


class TransactionalProducer(ABC):
    """A producer that has its producer id, and has fenced all that had its transactional id before."""

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, place: Place, value: bytes) -> None:
        """Come back when it is written."""

    @abstractmethod
    def send_offsets(self, offsets: Mapping[Place, int], group: Any) -> None:
        """`group` is what `Consumer.group` was, now or earlier."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class Consumer(ABC):
    """Reads its partitions from the beginning, or those it gets as the member of a group."""

    @abstractmethod
    def poll(self) -> list[tuple[Place, int, bytes]]:
        """Place, offset and value of what has come within a moment."""

    @property
    @abstractmethod
    def group(self) -> Any:
        """What tells a producer who reads (KIP-447)."""

    @abstractmethod
    def committed(self, place: Place) -> int | None: ...

    @abstractmethod
    def end_offset(self, place: Place) -> int:
        """What it could read up to now."""

    @abstractmethod
    def close(self) -> None: ...

    def read(self, count: int) -> list[tuple[Place, int, bytes]]:
        """That many records at least."""
        records: list[tuple[Place, int, bytes]] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(records) < count:
            assert time.monotonic() < deadline, records
            records += self.poll()
        return records


class TransactionalClient(ABC):
    """One client library."""

    name: str
    names_members = True
    """Whether its producer says which member of a group has read, so that former ones can be refused."""

    @abstractmethod
    def producer(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> TransactionalProducer: ...

    @abstractmethod
    def consumer(
        self, bootstrap: str, places: Iterable[Place] = (), *, committed: bool = True, group: str = "", topic: str = ""
    ) -> Consumer:
        """Of those partitions, or as a member of a group that reads the topic."""

    @contextlib.contextmanager
    def producing(
        self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000
    ) -> Iterator[TransactionalProducer]:
        with contextlib.closing(self.producer(bootstrap, transactional_id, timeout_ms)) as producer:
            yield producer

    def read_all(self, bootstrap: str, places: Iterable[Place], *, committed: bool = True) -> list[bytes]:
        """What it sees in partitions that `end` was called for, sorted."""
        missing, values = set(places), []
        deadline = time.monotonic() + PATIENCE_S
        with contextlib.closing(self.consumer(bootstrap, missing, committed=committed)) as consumer:
            while missing:
                assert time.monotonic() < deadline, f"{missing} have no end; read: {sorted(values)}"
                for place, _, value in consumer.poll():
                    if value == LAST:
                        missing.remove(place)
                    else:
                        values.append(value)
        return sorted(values)

    def __repr__(self) -> str:
        return self.name


def end(bootstrap: str, places: Iterable[Place]) -> None:
    """Write `LAST` to each of them, outside of all transactions."""
    for topic, index in places:
        CONFLUENT.produce(bootstrap, topic, [Record(index, int(time.time() * 1000), None, LAST)], ProducerSettings())


class Confluent(TransactionalClient):
    """librdkafka."""

    name = "confluent-kafka"

    def producer(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> TransactionalProducer:
        return _ConfluentProducer(bootstrap, transactional_id, timeout_ms)

    def consumer(
        self, bootstrap: str, places: Iterable[Place] = (), *, committed: bool = True, group: str = "", topic: str = ""
    ) -> Consumer:
        return _ConfluentConsumer(bootstrap, places, committed=committed, group=group, topic=topic)


class _ConfluentProducer(TransactionalProducer):
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        settings = {
            "linger.ms": 0,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": timeout_ms,
            "log_level": 0,
        }
        self._producer = confluent_kafka.Producer(
            settings | {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
        )
        with _confluent_refusals():
            self._producer.init_transactions(PATIENCE_S)

    def begin(self) -> None:
        with _confluent_refusals():
            self._producer.begin_transaction()

    def send(self, place: Place, value: bytes) -> None:
        failures: list[confluent_kafka.KafkaError] = []
        with _confluent_refusals():
            self._producer.produce(
                place[0], value, partition=place[1], on_delivery=lambda error, _: failures.append(error)
            )
            assert self._producer.flush(PATIENCE_S) == 0
            if failures[0] is not None:
                raise confluent_kafka.KafkaException(failures[0])

    def send_offsets(self, offsets: Mapping[Place, int], group: Any) -> None:
        with _confluent_refusals():
            self._producer.send_offsets_to_transaction(
                [confluent_kafka.TopicPartition(*place, offset) for place, offset in offsets.items()], group, PATIENCE_S
            )

    def commit(self) -> None:
        with _confluent_refusals():
            self._producer.commit_transaction(PATIENCE_S)

    def abort(self) -> None:
        with _confluent_refusals():
            self._producer.abort_transaction(PATIENCE_S)

    def close(self) -> None:
        del self._producer


@contextlib.contextmanager
def _confluent_refusals() -> Iterator[None]:
    try:
        yield
    except confluent_kafka.KafkaException as failure:
        raise Refused(failure) from failure


class _ConfluentConsumer(Consumer):
    def __init__(self, bootstrap: str, places: Iterable[Place], *, committed: bool, group: str, topic: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group or "unused",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        if group:
            self._consumer.subscribe([topic])
        else:
            self._consumer.assign([confluent_kafka.TopicPartition(*place, 0) for place in places])

    def poll(self) -> list[tuple[Place, int, bytes]]:
        messages = self._consumer.consume(500, POLL_MS / 1000)
        for message in messages:
            assert message.error() is None, message.error()
        return [((message.topic(), message.partition()), message.offset(), message.value()) for message in messages]

    @property
    def group(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def committed(self, place: Place) -> int | None:
        (found,) = self._consumer.committed([confluent_kafka.TopicPartition(*place)], PATIENCE_S)
        return None if found.offset == confluent_kafka.OFFSET_INVALID else found.offset

    def end_offset(self, place: Place) -> int:
        _, end_offset = self._consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*place), PATIENCE_S)
        return int(end_offset)

    def close(self) -> None:
        self._consumer.close()


class KafkaPython(TransactionalClient):
    """The pure Python client."""

    name = "kafka-python"

    def producer(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> TransactionalProducer:
        return _KafkaPythonProducer(bootstrap, transactional_id, timeout_ms)

    def consumer(
        self, bootstrap: str, places: Iterable[Place] = (), *, committed: bool = True, group: str = "", topic: str = ""
    ) -> Consumer:
        return _KafkaPythonConsumer(bootstrap, places, committed=committed, group=group, topic=topic)


class _KafkaPythonProducer(TransactionalProducer):
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            linger_ms=0,
        )
        try:
            with _kafka_python_refusals():
                self._producer.init_transactions()
        except Refused:
            self.close()  # Or it goes on asking for metadata when its brokers have long gone.
            raise

    def begin(self) -> None:
        with _kafka_python_refusals():
            self._producer.begin_transaction()

    def send(self, place: Place, value: bytes) -> None:
        with _kafka_python_refusals():
            self._producer.send(place[0], value, partition=place[1]).get(PATIENCE_S)

    def send_offsets(self, offsets: Mapping[Place, int], group: Any) -> None:
        wanted = {
            kafka.TopicPartition(*place): kafka.structs.OffsetAndMetadata(offset, "", -1)
            for place, offset in offsets.items()
        }
        with _kafka_python_refusals():
            self._producer.send_offsets_to_transaction(wanted, group)

    def commit(self) -> None:
        with _kafka_python_refusals():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with _kafka_python_refusals():
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(PATIENCE_S)


@contextlib.contextmanager
def _kafka_python_refusals() -> Iterator[None]:
    try:
        yield
    except kafka.errors.KafkaError as failure:
        raise Refused(failure) from failure


class _KafkaPythonConsumer(Consumer):
    def __init__(self, bootstrap: str, places: Iterable[Place], *, committed: bool, group: str, topic: str) -> None:
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            group_id=group or None,
            isolation_level="read_committed" if committed else "read_uncommitted",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        if group:
            self._consumer.subscribe([topic])
        else:
            self._consumer.assign([kafka.TopicPartition(*place) for place in places])

    def poll(self) -> list[tuple[Place, int, bytes]]:
        return [
            ((message.topic, message.partition), message.offset, message.value)
            for messages in self._consumer.poll(timeout_ms=POLL_MS).values()
            for message in messages
        ]

    @property
    def group(self) -> Any:
        return self._consumer.group_metadata()

    def committed(self, place: Place) -> int | None:
        found: int | None = self._consumer.committed(kafka.TopicPartition(*place))
        return found

    def end_offset(self, place: Place) -> int:
        partition = kafka.TopicPartition(*place)
        return int(self._consumer.end_offsets([partition])[partition])

    def close(self) -> None:
        self._consumer.close()


class Aiokafka(TransactionalClient):
    """The asyncio client."""

    name = "aiokafka"
    names_members = False

    def producer(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> TransactionalProducer:
        return _AiokafkaProducer(bootstrap, transactional_id, timeout_ms)

    def consumer(
        self, bootstrap: str, places: Iterable[Place] = (), *, committed: bool = True, group: str = "", topic: str = ""
    ) -> Consumer:
        return _AiokafkaConsumer(bootstrap, places, committed=committed, group=group, topic=topic)


class _Loop:
    """An event loop on a thread of its own: producers and members have to do things while nobody waits for them."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)
        except (aiokafka.errors.KafkaError, AssertionError) as failure:  # The latter from a producer that has failed.
            raise Refused(failure) from failure

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()


class _AiokafkaProducer(TransactionalProducer):
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._loop = _Loop()
        self._producer = self._loop.run(self._made(bootstrap, transactional_id, timeout_ms))

    @staticmethod
    async def _made(bootstrap: str, transactional_id: str, timeout_ms: int) -> aiokafka.AIOKafkaProducer:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            linger_ms=0,
        )
        await producer.start()
        return producer

    def begin(self) -> None:
        self._loop.run(self._producer.begin_transaction())

    def send(self, place: Place, value: bytes) -> None:
        self._loop.run(self._producer.send_and_wait(place[0], value, partition=place[1]))

    def send_offsets(self, offsets: Mapping[Place, int], group: Any) -> None:
        wanted = {aiokafka.TopicPartition(*place): offset for place, offset in offsets.items()}
        self._loop.run(self._producer.send_offsets_to_transaction(wanted, group))

    def commit(self) -> None:
        self._loop.run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._loop.run(self._producer.abort_transaction())

    def close(self) -> None:
        with contextlib.suppress(Refused):
            self._loop.run(self._producer.stop())
        self._loop.close()


class _AiokafkaConsumer(Consumer):
    def __init__(self, bootstrap: str, places: Iterable[Place], *, committed: bool, group: str, topic: str) -> None:
        self._group = group
        self._loop = _Loop()
        self._consumer = self._loop.run(self._made(bootstrap, places, committed=committed, group=group, topic=topic))

    @staticmethod
    async def _made(
        bootstrap: str, places: Iterable[Place], *, committed: bool, group: str, topic: str
    ) -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group or None,
            isolation_level="read_committed" if committed else "read_uncommitted",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        if group:
            consumer.subscribe([topic])
        else:
            consumer.assign([aiokafka.TopicPartition(*place) for place in places])
        await consumer.start()
        return consumer

    def poll(self) -> list[tuple[Place, int, bytes]]:
        got = self._loop.run(self._consumer.getmany(timeout_ms=POLL_MS))
        return [
            ((message.topic, message.partition), message.offset, message.value)
            for messages in got.values()
            for message in messages
        ]

    @property
    def group(self) -> Any:
        return self._group

    def committed(self, place: Place) -> int | None:
        return self._loop.run(self._consumer.committed(aiokafka.TopicPartition(*place)))

    def end_offset(self, place: Place) -> int:
        partition = aiokafka.TopicPartition(*place)
        return self._loop.run(self._consumer.end_offsets([partition]))[partition]

    def close(self) -> None:
        self._loop.run(self._consumer.stop())
        self._loop.close()


TRANSACTIONAL_CLIENTS: tuple[TransactionalClient, ...] = (Confluent(), KafkaPython(), Aiokafka())
