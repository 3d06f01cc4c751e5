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
    decode_fields,
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
        self._pieces = self._read()
        self._piece: list[ConsumerRecord] = []
        self._taken = 0
        """How many of the piece were handed out."""
        self._failure: KafkaError | None = None

    def take(self, count: int) -> list[ConsumerRecord]:
        """Up to that many records; fewer only at the end.

        A bad batch raises CORRUPT_MESSAGE or INVALID_RECORD, once all records before it have been taken.
        """
        taken: list[ConsumerRecord] = []
        while len(taken) < count:
            more = self._piece[self._taken : self._taken + count - len(taken)]
            if more:
                self._taken += len(more)
                self.next_offset = more[-1].offset + 1
                taken = taken + more if taken else more
            elif not self._has_piece():
                break
        if self._failure is not None and not taken:
            raise self._failure
        return taken

    def _has_piece(self) -> bool:
        if self._failure is not None:
            return False
        try:
            self._piece = next(self._pieces, [])
        except KafkaError as bad:
            self._piece = []
            self._failure = bad
        self._taken = 0
        return bool(self._piece)

    def _read(self) -> Iterator[list[ConsumerRecord]]:
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
                leader_epoch = header.leader_epoch
                is_append_time = bool(header.attributes & TIMESTAMP_TYPE_BIT)
                for some in decode_fields(batch):
                    start = self.next_offset
                    records = [
                        ConsumerRecord(
                            topic, partition, offset, timestamp, key, content, headers, leader_epoch, is_append_time
                        )
                        for key, content, headers, timestamp, offset in some
                        if offset >= start
                    ]
                    if records:
                        yield records
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
