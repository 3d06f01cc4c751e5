"""DeleteRecords: everything before an offset is to go."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import TopicName, int16, int32, int64


class DeleteRecordsPartition(Struct):
    partition_index: int32
    offset: int64


class DeleteRecordsTopic(Struct):
    name: TopicName
    partitions: list[DeleteRecordsPartition]


class DeleteRecordsRequest(Message, api_key=21, versions="0-2", flexible="2+"):
    topics: list[DeleteRecordsTopic]
    timeout_ms: int32


class DeleteRecordsPartitionResult(Struct):
    partition_index: int32
    low_watermark: int64
    error_code: int16 = 0


class DeleteRecordsTopicResult(Struct):
    name: TopicName
    partitions: list[DeleteRecordsPartitionResult]


class DeleteRecordsResponse(Message, api_key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: int32 = 0
    topics: list[DeleteRecordsTopicResult] = field(default_factory=list)
