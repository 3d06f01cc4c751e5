"""A batch while it grows, while it waits, and while it is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from odradek.client.cluster import TopicPartition
from odradek.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from odradek.protocol.records.batch import HEADER_SIZE, TRANSACTIONAL_BIT, frame_batch
from odradek.protocol.records.compression import Compression, compress
from odradek.protocol.records.record import Header, encode_record
from odradek.values import value

RECORD_OVERHEAD = 21
"""What a record's own lengths and deltas take at most, without headers (as the Java client reckons)."""


@value
class RecordMetadata:
    """Where a record was put; offset -1 where the broker was not asked (acks=0) or does not remember."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class ProducerBatch:
    """Records of one partition, encoded one by one as they come; compressed once, stamped each time it is sent."""

    __slots__ = (
        "_base_timestamp",
        "_body",
        "_max_timestamp",
        "_payload",
        "_receipts",
        "attempts",
        "base_sequence",
        "charged_bytes",
        "created_ms",
        "failure",
        "number",
        "partition",
        "producer_epoch",
        "producer_id",
        "retry_at_ms",
        "settled",
    )

    def __init__(self, partition: TopicPartition, *, number: int, now_ms: int) -> None:
        self.partition = partition
        self.number = number
        """Batches of a producer are numbered as they are begun, which is the order they are sent in."""
        self.created_ms = now_ms
        self.retry_at_ms = 0
        self.attempts = 0
        self.failure: Exception | None = None
        """Why the last attempt did not succeed."""
        self.charged_bytes = 0
        self.producer_id: int = NO_PRODUCER_ID
        self.producer_epoch: int = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._body = bytearray()
        self._payload: bytes | bytearray | None = None
        self._base_timestamp = 0
        self._max_timestamp = 0
        self._receipts: list[tuple[asyncio.Future[RecordMetadata], int]] = []

    @property
    def records_count(self) -> int:
        return len(self._receipts)

    @property
    def size_bytes(self) -> int:
        return HEADER_SIZE + len(self._body if self._payload is None else self._payload)

    def append(
        self,
        key: bytes | None,
        content: bytes | None,
        headers: Sequence[Header],
        *,
        timestamp: int,
        limit_bytes: int,
    ) -> asyncio.Future[RecordMetadata] | None:
        """The record's future, or None if it would make the batch larger than the limit; the first always fits."""
        count = len(self._receipts)
        body = self._body
        before = len(body)
        if count == 0:
            self._base_timestamp = self._max_timestamp = timestamp
        body += encode_record(timestamp - self._base_timestamp, count, key, content, headers)
        if count and HEADER_SIZE + len(body) > limit_bytes:
            del body[before:]
            return None
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        receipt: asyncio.Future[RecordMetadata] = self.settled.get_loop().create_future()
        self._receipts.append((receipt, timestamp))
        return receipt

    def encode(self, compression: Compression, level: int | None, *, transactional: bool) -> bytearray:
        """The batch as it is sent, with the producer id, epoch and sequence it carries now."""
        if self._payload is None:
            if compression is Compression.NONE:
                self._payload = self._body
            else:
                self._payload = compress(compression, self._body, level)
                self._body = bytearray()
        return frame_batch(
            self._payload,
            attributes=compression | TRANSACTIONAL_BIT if transactional else int(compression),
            records_count=len(self._receipts),
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
        )

    def succeed(self, base_offset: int, log_append_time_ms: int) -> None:
        topic, partition = self.partition
        for index, (receipt, timestamp) in enumerate(self._receipts):
            if not receipt.done():
                offset = base_offset + index if base_offset >= 0 else -1
                timestamp = timestamp if log_append_time_ms < 0 else log_append_time_ms
                receipt.set_result(RecordMetadata(topic, partition, offset, timestamp))
        self.settled.set_result(None)

    def fail(self, failure: Exception) -> None:
        for receipt, _ in self._receipts:
            if not receipt.done():
                receipt.set_exception(failure)
        self.settled.set_result(None)


def record_size(key: bytes | None, content: bytes | None, headers: Sequence[Header]) -> int:
    """An upper bound of what a record takes, before it is encoded."""
    size = RECORD_OVERHEAD + (len(key) if key else 0) + (len(content) if content else 0)
    for name, held in headers:
        size += 10 + len(name.encode()) + (len(held) if held else 0)
    return size
