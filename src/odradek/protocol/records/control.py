"""Control records: what brokers and controllers write between the records of clients."""

from __future__ import annotations

import struct
from enum import IntEnum

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.batch import build_batch, decode_records
from odradek.protocol.records.record import Record
from odradek.values import value

_KEY = struct.Struct(">hh")
_KEY_VERSION = 0
_END_TXN = struct.Struct(">hi")
_END_TXN_VERSION = 0


class ControlType(IntEnum):
    """The type in a control record's key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@value
class EndTxnMarker:
    """The end of a producer's transaction in a partition."""

    committed: bool
    coordinator_epoch: int


def control_key(kind: ControlType) -> bytes:
    return _KEY.pack(_KEY_VERSION, kind)


def control_type(key: bytes | None) -> int:
    """The type in the key, also one that is not known yet: readers skip those."""
    if key is None or len(key) < _KEY.size:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a control record's key is too short")
    kind: int
    _, kind = _KEY.unpack_from(key)
    return kind


def end_txn_batch(
    marker: EndTxnMarker, *, producer_id: int, producer_epoch: int, timestamp: int, leader_epoch: int = -1
) -> bytearray:
    """The batch a transaction coordinator has appended to each partition of the transaction."""
    kind = ControlType.COMMIT if marker.committed else ControlType.ABORT
    record = Record(control_key(kind), _END_TXN.pack(_END_TXN_VERSION, marker.coordinator_epoch))
    return build_batch(
        [record],
        leader_epoch=leader_epoch,
        timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_end_txn_marker(batch: bytes | bytearray | memoryview) -> EndTxnMarker | None:
    """The marker in a control batch; None if the batch is of another kind, or compaction has emptied it."""
    record = next(decode_records(batch), None)
    return None if record is None else end_txn_marker(record)


def end_txn_marker(record: Record) -> EndTxnMarker | None:
    """What a control record says of a transaction's end; None if it is of another kind."""
    kind = control_type(record.key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _END_TXN.size:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the transaction marker at {record.offset} is too short")
    _, coordinator_epoch = _END_TXN.unpack_from(record.value)
    return EndTxnMarker(kind == ControlType.COMMIT, coordinator_epoch)
