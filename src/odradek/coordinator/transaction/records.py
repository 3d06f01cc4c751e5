"""Key and value of `__transaction_state`: one entry a transactional id."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import int8, int16, int32, int64, string


class TransactionLogKey(Message, api_key=0, versions="0"):
    transactional_id: string


class PartitionsSchema(Struct):
    topic: string
    partition_ids: list[int32]


class TransactionLogValue(Message, api_key=0, versions="0-1", flexible="1+"):
    producer_id: int64
    previous_producer_id: int64 = field(versions="1+", tag=0, default=-1)
    next_producer_id: int64 = field(versions="1+", tag=1, default=-1)
    producer_epoch: int16
    next_producer_epoch: int16 = field(versions="1+", tag=3, default=-1)
    transaction_timeout_ms: int32
    transaction_status: int8
    transaction_partitions: list[PartitionsSchema] | None = field(nullable="0+")
    transaction_last_update_timestamp_ms: int64
    transaction_start_timestamp_ms: int64
    client_transaction_version: int16 = field(versions="1+", tag=2, default=0)
