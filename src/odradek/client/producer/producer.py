"""The producer as its user sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType

from odradek.client.cluster import Cluster, TopicInfo, TopicPartition
from odradek.client.errors import ClientError, DeliveryTimedOut, Misused
from odradek.client.link import Ports
from odradek.client.offsets import CommittedOffset, GroupMetadata, committable
from odradek.client.producer.accumulator import Accumulator
from odradek.client.producer.batch import RecordMetadata, record_size
from odradek.client.producer.partitioners import Partitioner, RoundRobin, Sticky, partition_of_key
from odradek.client.producer.sender import Sender
from odradek.client.producer.transactions import ProducerIdentity, Transactions
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

    def __init__(
        self,
        ports: Ports,
        settings: Given,
        *,
        partitioner: Partitioner | None = None,
        guest_of: ProducerIdentity | None = None,
    ) -> None:
        held = Settings(PRODUCER_TABLE, settings)
        acks = {"all": -1, "-1": -1, "0": 0, "1": 1}[held.text("acks")]
        transactional = _transactional(held, guest_of)
        idempotent = _idempotent(held, acks)
        if transactional and not idempotent:
            raise ConfigError("transactions need enable.idempotence=true", "transactional.id")
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
        self._transactions: Transactions | None = None
        if transactional:
            self._transactions = Transactions(self.cluster, self._sender, guest_of=guest_of)
            self._sender.transactions = self._transactions
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
        transactions = self._transactions
        transaction = 0
        if transactions is not None:
            transactions.check_open()
            transaction = transactions.number
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
            if transactions is not None:
                transactions.check_open()
                if transactions.number != transaction:
                    raise Misused("the transaction ended before the record was taken: await every submit before")
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
        await self._sender.settle()

    async def partitions_for(self, topic: str) -> TopicInfo:
        """The topic's partitions and their leaders."""
        return await self.cluster.topic(topic, timeout_ms=self._max_block_ms)

    # Transactions.

    async def init_transactions(self) -> None:
        """Take over `transactional.id`, once, before the first transaction.

        Earlier producers of that name are fenced, and what they left open is aborted.
        """
        await self._transactional().init()

    def begin_transaction(self) -> None:
        """What is sent from now on belongs together."""
        self._transactional().begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, CommittedOffset | int], group: GroupMetadata
    ) -> None:
        """Commit a group's offsets with the transaction: take both from the consumer that read the input.

        `group` is its `group_metadata()`: a consumer that is no member any more is refused.
        """
        await self._transactional().send_offsets(committable(offsets), group)

    async def commit_transaction(self) -> None:
        """Deliver what was sent and make it visible, all of it; raises TransactionFailed if it can only be aborted."""
        await self._transactional().commit()

    async def abort_transaction(self) -> None:
        """What was sent will never be seen by those who read only what is committed."""
        await self._transactional().abort()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Producer]:
        """A block that is one transaction: committed at its end, and aborted if it raises."""
        transactions = self._transactional()
        self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException:
            if transactions.can_be_aborted:
                await self.abort_transaction()
            raise

    async def share_transaction(self) -> ProducerIdentity:
        """Let others write in the transaction that has just begun: producers made with `guest_of` what this returns.

        To each partition only one of them may write, and what a guest has left undone is done by nobody else: if it
        fails, the transaction is aborted. What guests `hand_back` must be given to `include` before the commit.
        """
        return await self._transactional().share()

    def include(self, partitions: Iterable[TopicPartition]) -> None:
        """Guests have written to these."""
        self._transactional().include(partitions)

    async def hand_back(self) -> list[TopicPartition]:
        """Of a guest: deliver all that was sent, and tell to which partitions; raises if any of it was lost."""
        await self.flush()
        transactions = self._transactional()
        transactions.check_open()
        return transactions.written

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise Misused("transactions need a transactional.id")
        return self._transactions

    # The end.

    async def close(self, timeout_ms: int | None = None) -> None:
        """Deliver what is left (for at most that long), then close; what is not through then fails.

        An open transaction is aborted.
        """
        if self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                if self._transactions is not None and self._transactions.can_be_aborted:
                    await self._abort_at_the_end(self._transactions)
                await self.flush()
        except TimeoutError:
            raise DeliveryTimedOut(f"closed after {timeout_ms} ms with records undelivered") from None
        finally:
            if self._transactions is not None:
                await self._transactions.close()
            await self._sender.stop()
            await self.cluster.close()

    async def _abort_at_the_end(self, transactions: Transactions) -> None:
        try:
            await transactions.abort()
        except (ClientError, KafkaError):
            return  # The coordinator does it, at the latest when `transaction.timeout.ms` is over.

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


def _transactional(settings: Settings, guest_of: ProducerIdentity | None) -> bool:
    name = settings.optional_text("transactional.id")
    if name == "":
        raise ConfigError("transactional.id must not be empty", "transactional.id")
    if name is not None and guest_of is not None:
        raise ConfigError("transactional.id is that of the transaction's owner", "transactional.id")
    return name is not None or guest_of is not None


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
