"""What a fetch brought for one partition, decoded as it is handed out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odradek.client.cluster import TopicPartition
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.fetch import AbortedTransaction
from odradek.protocol.records.batch import (
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    crc_matches,
    decode_records,
    iter_batches,
    read_header,
)
from odradek.protocol.records.control import ControlType, control_type
from odradek.protocol.records.record import Header
from odradek.values import value


@value
class ConsumerRecord:
    """A record and where it was read."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    leader_epoch: int
    is_log_append_time: bool


class FetchedRecords:
    """Batches of one partition from an offset on.

    `next_offset` is where reading goes on after what was handed out: it also passes what a consumer never sees, namely
    markers, aborted transactions, and holes that compaction left.
    """

    def __init__(
        self,
        partition: TopicPartition,
        data: memoryview,
        *,
        from_offset: int,
        aborted: Sequence[AbortedTransaction] | None,
        check_crcs: bool,
    ) -> None:
        self.partition = partition
        self.next_offset = from_offset
        self._data = data
        self._check_crcs = check_crcs
        self._aborted = sorted(aborted or (), key=lambda transaction: transaction.first_offset)
        self._records = self._read()
        self._failure: KafkaError | None = None

    def take(self, count: int) -> list[ConsumerRecord]:
        """Up to that many records; fewer only at the end.

        A bad batch raises CORRUPT_MESSAGE or INVALID_RECORD, once all records before it have been taken.
        """
        taken: list[ConsumerRecord] = []
        try:
            if self._failure is None:
                for record in self._records:
                    taken.append(record)
                    self.next_offset = record.offset + 1
                    if len(taken) == count:
                        break
        except KafkaError as bad:
            self._failure = bad
        if self._failure is not None and not taken:
            raise self._failure
        return taken

    def _read(self) -> Iterator[ConsumerRecord]:
        topic, partition = self.partition
        aborting: set[int] = set()
        for batch in iter_batches(self._data):
            header = read_header(batch)
            if header.last_offset < self.next_offset:
                continue
            if self._check_crcs and not crc_matches(batch):
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE, f"{self.partition}: the batch at offset {header.base_offset} is corrupt"
                )
            if not self._is_hidden(header, batch, aborting):
                for record in decode_records(batch):
                    if record.offset >= self.next_offset:
                        yield ConsumerRecord(
                            topic,
                            partition,
                            record.offset,
                            record.timestamp,
                            record.key,
                            record.value,
                            record.headers,
                            header.leader_epoch,
                            bool(header.attributes & TIMESTAMP_TYPE_BIT),
                        )
            self.next_offset = header.last_offset + 1

    def _is_hidden(self, header: BatchHeader, batch: memoryview, aborting: set[int]) -> bool:
        """Whether no consumer is to see the batch; keeps count of the transactions that end aborted."""
        while self._aborted and self._aborted[0].first_offset <= header.last_offset:
            aborting.add(self._aborted.pop(0).producer_id)
        if header.is_control:
            if header.producer_id in aborting:
                marker = next(decode_records(batch), None)
                if marker is not None and control_type(marker.key) == ControlType.ABORT:
                    aborting.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in aborting
