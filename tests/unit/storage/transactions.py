"""Transactions as they stand in a log: what a producer wrote, and the marker that ended it."""

from __future__ import annotations

from tests.unit.storage.worlds import NOW_MS, append

from odradek.protocol.records.control import EndTxnMarker, end_txn_batch
from odradek.storage.log import AppendInfo, Log
from odradek.storage.validation import Origin


def produce(
    log: Log, sequence: int, *, epoch: int = 0, count: int = 1, producer: int = 7, txn: bool = False, size: int = 1
) -> AppendInfo:
    return append(
        log,
        *[b"x" * size] * count,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=txn,
    )


def end(
    log: Log, *, commit: bool, producer: int = 7, epoch: int = 0, coordinator_epoch: int = 0, version: int = 0
) -> AppendInfo:
    marker = EndTxnMarker(commit, coordinator_epoch)
    batch = end_txn_batch(marker, producer_id=producer, producer_epoch=epoch, timestamp=NOW_MS)
    return log.append_as_leader(
        memoryview(batch), leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR, transaction=version
    )
