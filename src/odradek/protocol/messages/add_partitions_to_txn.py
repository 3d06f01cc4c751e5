"""AddPartitionsToTxn: partitions that a transaction writes to, or whose membership a broker verifies."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import ProducerId, TopicName, TransactionalId, boolean, int16, int32


class AddPartitionsToTxnTopic(Struct):
    name: TopicName
    partitions: list[int32]


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: int16
    verify_only: boolean = False
    topics: list[AddPartitionsToTxnTopic]


class AddPartitionsToTxnRequest(Message, api_key=24, versions="0-5", flexible="3+"):
    transactions: list[AddPartitionsToTxnTransaction] = field(versions="4+", default_factory=list)
    v3_and_below_transactional_id: TransactionalId = field(versions="0-3", default="")
    v3_and_below_producer_id: ProducerId = field(versions="0-3", default=0)
    v3_and_below_producer_epoch: int16 = field(versions="0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(versions="0-3", default_factory=list)


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int32
    partition_error_code: int16


class AddPartitionsToTxnTopicResult(Struct):
    name: TopicName
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnResult(Struct):
    transactional_id: TransactionalId
    topic_results: list[AddPartitionsToTxnTopicResult]


class AddPartitionsToTxnResponse(Message, api_key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = field(versions="4+", default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(versions="4+", default_factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(versions="0-3", default_factory=list)
