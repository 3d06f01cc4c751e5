"""DescribeProducers: the producers that partitions remember."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import ProducerId, TopicName, int16, int32, int64, string


class TopicRequest(Struct):
    name: TopicName
    partition_indexes: list[int32]


class DescribeProducersRequest(Message, api_key=61, versions="0", flexible="0+"):
    topics: list[TopicRequest]


class ProducerState(Struct):
    producer_id: ProducerId
    producer_epoch: int32
    last_sequence: int32 = -1
    last_timestamp: int64 = -1
    coordinator_epoch: int32
    current_txn_start_offset: int64 = -1


class PartitionResponse(Struct):
    partition_index: int32
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    active_producers: list[ProducerState]


class TopicResponse(Struct):
    name: TopicName
    partitions: list[PartitionResponse]


class DescribeProducersResponse(Message, api_key=61, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    topics: list[TopicResponse] = field(default_factory=list)
