"""Queues of batches by partition, the memory they may take, and which of them are due."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence

from odradek.client.cluster import TopicPartition
from odradek.client.errors import BufferExhausted
from odradek.client.producer.batch import ProducerBatch, RecordMetadata
from odradek.protocol.records.record import Header

MAX_EPOCH = 32_767


class PartitionQueue:
    """One partition's batches in order, and the identity and sequence they are sent under.

    A batch that failed goes back to its place. While an earlier failure is being cleared up, nothing is sent until all
    that is under way has come back: then the queue is in order again and can be sent in order.
    """

    __slots__ = (
        "in_flight",
        "is_known",
        "is_recovering",
        "next_sequence",
        "producer_epoch",
        "producer_id",
        "waiting",
    )

    def __init__(self) -> None:
        self.waiting: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        self.is_recovering = False
        self.is_known = True
        """Whether the broker knows the identity. From one it does not know it takes any sequence for the first."""
        self.producer_id = -1
        self.producer_epoch = -1
        self.next_sequence = 0

    def take(self) -> ProducerBatch:
        """The first batch, to be sent now."""
        batch = self.waiting.popleft()
        self.in_flight.append(batch)
        batch.attempts += 1
        return batch

    def put_back(self, batch: ProducerBatch) -> None:
        """A batch that was sent, and must be sent again, at its place among the others."""
        self.in_flight.remove(batch)
        self.is_recovering = True
        place = 0
        while place < len(self.waiting) and self.waiting[place].number < batch.number:
            place += 1
        self.waiting.insert(place, batch)

    def settle(self, batch: ProducerBatch) -> None:
        """A batch that was sent, and is through or given up."""
        self.in_flight.remove(batch)

    def is_first_in_line(self, batch: ProducerBatch) -> bool:
        """Whether nothing before this batch is still undecided."""
        earlier = [other for other in self.in_flight if other.number < batch.number]
        return not earlier and (not self.waiting or self.waiting[0].number > batch.number)

    def may_send(self) -> bool:
        """Whether in-flight batches allow another one; ends a recovery that is through."""
        if not self.in_flight:
            self.is_recovering = False
            return True
        return self.is_known and not self.is_recovering

    # Idempotence.

    def adopt(self, producer_id: int, producer_epoch: int) -> None:
        """Start counting anew under this identity; what waits is stamped anew when it is taken."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.next_sequence = 0
        self.is_known = False
        for batch in self.waiting:
            batch.base_sequence = -1

    def stamp(self, batch: ProducerBatch) -> None:
        """Give a batch its sequence, once: a retry must carry the same one to be known again."""
        if batch.base_sequence >= 0:
            return
        batch.producer_id = self.producer_id
        batch.producer_epoch = self.producer_epoch
        batch.base_sequence = self.next_sequence
        self.next_sequence = (self.next_sequence + batch.records_count) & 0x7FFFFFFF


class Accumulator:
    """All queues of a producer."""

    def __init__(self, *, batch_size: int, linger_ms: int, memory_bytes: int) -> None:
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.memory = Memory(memory_bytes)
        self.flushes = 0
        """How many flushes are waiting: while any is, nothing lingers."""
        self._batch_size = batch_size
        self._linger_ms = linger_ms
        self._begun = 0

    def append(
        self,
        partition: TopicPartition,
        key: bytes | None,
        content: bytes | None,
        headers: Sequence[Header],
        *,
        timestamp: int,
        now_ms: int,
        charged_bytes: int,
    ) -> tuple[asyncio.Future[RecordMetadata], bool]:
        """The record's future, and whether the sender has something to do that it did not have before.

        The bytes must have been taken from `memory`; they go back when the batch is settled.
        """
        queue = self.queues.get(partition)
        if queue is None:
            queue = self.queues[partition] = PartitionQueue()
        waiting = queue.waiting
        if waiting and not waiting[-1].attempts:
            last = waiting[-1]
            receipt = last.append(key, content, headers, timestamp=timestamp, limit_bytes=self._batch_size)
            if receipt is not None:
                last.charged_bytes += charged_bytes
                return receipt, last.size_bytes >= self._batch_size
        self._begun += 1
        batch = ProducerBatch(partition, number=self._begun, now_ms=now_ms)
        receipt = batch.append(key, content, headers, timestamp=timestamp, limit_bytes=self._batch_size)
        assert receipt is not None, "the first record of a batch always fits"
        batch.charged_bytes = charged_bytes
        waiting.append(batch)
        return receipt, True

    def due_ms(self, queue: PartitionQueue) -> int:
        """When the queue's first batch may leave; now or earlier means now."""
        first = queue.waiting[0]
        if first.attempts:
            return first.retry_at_ms
        if len(queue.waiting) > 1 or self.flushes or self.memory.is_short or first.size_bytes >= self._batch_size:
            return 0
        return first.created_ms + self._linger_ms

    def release(self, batch: ProducerBatch) -> None:
        """A batch is through: its memory is free again."""
        self.memory.give(batch.charged_bytes)

    def unsettled(self) -> Iterator[ProducerBatch]:
        for queue in self.queues.values():
            yield from queue.in_flight
            yield from queue.waiting


class Memory:
    """`buffer.memory`: whoever finds too little waits, first come first served."""

    def __init__(self, size_bytes: int) -> None:
        self._free = size_bytes
        self._size = size_bytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def is_short(self) -> bool:
        """Whether somebody waits: then batches leave before they are full."""
        return bool(self._waiting)

    def try_take(self, size_bytes: int) -> bool:
        if self._waiting or size_bytes > self._free:
            return False
        self._free -= size_bytes
        return True

    async def take(self, size_bytes: int, *, timeout_ms: int) -> None:
        """Wait for that much; BufferExhausted if it does not become free in time."""
        if size_bytes > self._size:
            raise BufferExhausted(f"a record of {size_bytes} bytes is larger than buffer.memory={self._size}")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size_bytes, turn)
        self._waiting.append(entry)
        try:
            await asyncio.wait([turn], timeout=timeout_ms / 1000)
        except asyncio.CancelledError:
            if turn.done():
                self.give(size_bytes)
            raise
        finally:
            if not turn.done():
                self._waiting.remove(entry)
                turn.cancel()
                self._hand_out()
        if turn.cancelled():
            raise BufferExhausted(f"buffer.memory={self._size} stayed full for {timeout_ms} ms")

    def give(self, size_bytes: int) -> None:
        self._free += size_bytes
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            size_bytes, turn = self._waiting.popleft()
            self._free -= size_bytes
            turn.set_result(None)
