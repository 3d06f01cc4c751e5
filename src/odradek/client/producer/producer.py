"""The producer as its user sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType

from odradek.client.cluster import Cluster, TopicInfo, TopicPartition
from odradek.client.errors import DeliveryTimedOut, Misused
from odradek.client.link import Ports
from odradek.client.producer.accumulator import Accumulator
from odradek.client.producer.batch import RecordMetadata, record_size
from odradek.client.producer.partitioners import Partitioner, RoundRobin, Sticky, partition_of_key
from odradek.client.producer.sender import Sender
from odradek.client.settings import PRODUCER_TABLE, Given, Settings
from odradek.configdef import ConfigError
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.batch import HEADER_SIZE
from odradek.protocol.records.record import Header

MAX_IN_FLIGHT_IDEMPOTENT = 5
"""How many batches a partition remembers of a producer, hence how many may be undecided."""


class Producer:
    """Sends records; made inside a running event loop, and closed or used as an asynchronous context manager.

    `partitioner` decides for every record that does not name its partition, in place of keys and stickiness.
    """

    def __init__(self, ports: Ports, settings: Given, *, partitioner: Partitioner | None = None) -> None:
        held = Settings(PRODUCER_TABLE, settings)
        acks = {"all": -1, "-1": -1, "0": 0, "1": 1}[held.text("acks")]
        idempotent = _idempotent(held, acks)
        _check_timeouts(held)
        self.cluster = Cluster(ports, held, auto_create=True)
        self._clock = ports.clock
        self._max_block_ms = held.number("max.block.ms")
        self._max_request_bytes = held.number("max.request.size")
        self._ignore_keys = held.flag("partitioner.ignore.keys")
        self._partitioner = partitioner
        self._sticky = Sticky(ports.entropy, held.number("batch.size"))
        self._round_robin = RoundRobin() if held.text("partitioner.class") else None
        self._accumulator = Accumulator(
            batch_size=held.number("batch.size"),
            linger_ms=held.number("linger.ms"),
            memory_bytes=held.number("buffer.memory"),
        )
        self._sender = Sender(self.cluster, self._accumulator, acks=acks, idempotent=idempotent)
        self._closed = False

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is where `acks` wants it."""
        receipt = await self.submit(
            topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )
        return await receipt

    async def submit(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Put a record into a batch; the future gets its offset or why it could not be delivered.

        Waits only for metadata and buffer memory, at most `max.block.ms`. Records submitted one after another to a
        partition stay in that order.
        """
        if self._closed:
            raise Misused("the producer is closed")
        size = record_size(key, value, headers)
        if HEADER_SIZE + size > self._max_request_bytes:
            limit = f"max.request.size={self._max_request_bytes}"
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"a record of {size} bytes is larger than {limit}")
        known = self.cluster.topics.get(topic)
        if known is None:
            known = await self.cluster.topic(topic, timeout_ms=self._max_block_ms)
        if not self._accumulator.memory.try_take(size):
            self._sender.wake()
            await self._accumulator.memory.take(size, timeout_ms=self._max_block_ms)
        try:
            chosen = TopicPartition(topic, self._choose(known, key, value, partition, size))
        except BaseException:
            self._accumulator.memory.give(size)
            raise
        receipt, due = self._accumulator.append(
            chosen,
            key,
            value,
            headers,
            timestamp=self._clock.now_ms() if timestamp_ms is None else timestamp_ms,
            now_ms=self._clock.monotonic_ms(),
            charged_bytes=size,
        )
        if due:
            self._sender.wake()
            await asyncio.sleep(0)  # A loop of submits never waits for anything else, and the sender wants a turn.
        return receipt

    async def flush(self) -> None:
        """Wait until everything submitted so far is through, delivered or not; nothing lingers meanwhile."""
        settled = [batch.settled for batch in self._accumulator.unsettled()]
        if settled:
            self._accumulator.flushes += 1
            self._sender.wake()
            try:
                await asyncio.wait(settled)
            finally:
                self._accumulator.flushes -= 1

    async def partitions_for(self, topic: str) -> TopicInfo:
        """The topic's partitions and their leaders."""
        return await self.cluster.topic(topic, timeout_ms=self._max_block_ms)

    async def close(self, timeout_ms: int | None = None) -> None:
        """Deliver what is left (for at most that long), then close; what is not through then fails."""
        if self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self.flush()
        except TimeoutError:
            raise DeliveryTimedOut(f"closed after {timeout_ms} ms with records undelivered") from None
        finally:
            await self._sender.stop()
            await self.cluster.close()

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _choose(
        self, topic: TopicInfo, key: bytes | None, value: bytes | None, partition: int | None, size_bytes: int
    ) -> int:
        count = len(topic.partitions)
        if partition is None and self._partitioner is not None:
            partition = self._partitioner(topic.name, key, value, count)
        if partition is not None:
            if not 0 <= partition < count:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {topic.name!r} has {count} partitions, none is {partition}",
                )
            return partition
        if self._round_robin is None and key is not None and not self._ignore_keys:
            return partition_of_key(key, count)
        if self._round_robin is not None:
            return self._round_robin.choose(topic)
        return self._sticky.choose(topic, size_bytes)


def _idempotent(settings: Settings, acks: int) -> bool:
    """Idempotence is on unless another setting rules it out; asked for together with such a setting it is an error."""
    if not settings.flag("enable.idempotence"):
        return False
    conflicts = {
        "acks must be all": acks != -1,
        "retries must not be 0": settings.number("retries") == 0,
        f"max.in.flight.requests.per.connection must be at most {MAX_IN_FLIGHT_IDEMPOTENT}": settings.number(
            "max.in.flight.requests.per.connection"
        )
        > MAX_IN_FLIGHT_IDEMPOTENT,
    }
    broken = [rule for rule, violated in conflicts.items() if violated]
    if broken and "enable.idempotence" in settings.given:
        raise ConfigError(f"enable.idempotence=true: {', '.join(broken)}", "enable.idempotence")
    return not broken


def _check_timeouts(settings: Settings) -> None:
    least = settings.number("linger.ms") + settings.number("request.timeout.ms")
    if settings.number("delivery.timeout.ms") < least:
        raise ConfigError(
            f"delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms, which is {least}",
            "delivery.timeout.ms",
        )
