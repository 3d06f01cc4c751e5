"""Transactions in the partitions of a node, put there without a coordinator."""

from __future__ import annotations

from odradek.protocol.records.batch import build_batch
from odradek.protocol.records.control import EndTxnMarker, end_txn_batch
from odradek.protocol.records.record import Record
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.server.partitions.replicas import Replicas
from odradek.storage.validation import Origin

UNVERIFIED = {"transaction.partition.verification.enable": "false"}
"""For transactions that no coordinator has heard of."""


class Transactions:
    """Of one partition, by producer id."""

    def __init__(self, replicas: Replicas, hosted: HostedPartition, *, now_ms: int) -> None:
        self._replicas = replicas
        self._hosted = hosted
        self._now_ms = now_ms
        self._sequences: dict[int, int] = {}

    def write(self, producer_id: int, *values: bytes, timestamp: int | None = None) -> int:
        """A batch in the producer's transaction, which it begins if there is none; its base offset."""
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + len(values)
        batch = build_batch(
            [Record(value=value) for value in values],
            timestamp=self._now_ms if timestamp is None else timestamp,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        proof = self._hosted.partition.log.producers.verify(
            producer_id, 0, sequence, supports_epoch_bump=False, now_ms=self._now_ms
        )
        info = self._replicas.append(self._hosted, memoryview(batch), self._now_ms, transaction=proof)
        return info.base_offset

    def plain(self, *values: bytes) -> int:
        """A batch of no transaction; its base offset."""
        batch = build_batch([Record(value=value) for value in values], timestamp=self._now_ms)
        return self._replicas.append(self._hosted, memoryview(batch), self._now_ms).base_offset

    def commit(self, producer_id: int) -> int:
        return self._end(producer_id, committed=True)

    def abort(self, producer_id: int) -> int:
        return self._end(producer_id, committed=False)

    def _end(self, producer_id: int, *, committed: bool) -> int:
        """Where the marker is."""
        marker = end_txn_batch(
            EndTxnMarker(committed, coordinator_epoch=0),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=self._now_ms,
        )
        return self._replicas.append(self._hosted, memoryview(marker), self._now_ms, Origin.COORDINATOR).base_offset
