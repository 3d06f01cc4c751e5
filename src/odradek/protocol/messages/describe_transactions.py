"""DescribeTransactions: the state of transactional ids."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import ProducerId, TopicName, TransactionalId, int16, int32, int64, string


class DescribeTransactionsRequest(Message, api_key=65, versions="0", flexible="0+"):
    transactional_ids: list[TransactionalId]


class TopicData(Struct):
    topic: TopicName
    partitions: list[int32]


class TransactionState(Struct):
    error_code: int16 = 0
    transactional_id: TransactionalId
    transaction_state: string
    transaction_timeout_ms: int32
    transaction_start_time_ms: int64
    producer_id: ProducerId
    producer_epoch: int16
    topics: list[TopicData]


class DescribeTransactionsResponse(Message, api_key=65, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    transaction_states: list[TransactionState] = field(default_factory=list)
