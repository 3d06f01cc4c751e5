"""ListOffsets: the offset at a timestamp, or the first, last or newest one."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, TopicName, int8, int16, int32, int64

LATEST = -1
EARLIEST = -2
"""Timestamps that mean the ends of a partition."""


class ListOffsetsPartition(Struct):
    partition_index: int32
    current_leader_epoch: int32 = field(versions="4+", default=-1)
    timestamp: int64


class ListOffsetsTopic(Struct):
    name: TopicName
    partitions: list[ListOffsetsPartition]


class ListOffsetsRequest(Message, api_key=2, versions="1-11", flexible="6+"):
    replica_id: BrokerId
    isolation_level: int8 = field(versions="2+", default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: int32 = field(versions="10+", default=0)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int32
    error_code: int16 = 0
    timestamp: int64 = -1
    offset: int64 = -1
    leader_epoch: int32 = field(versions="4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: TopicName
    partitions: list[ListOffsetsPartitionResponse]


class ListOffsetsResponse(Message, api_key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: int32 = field(versions="2+", default=0)
    topics: list[ListOffsetsTopicResponse] = field(default_factory=list)
