"""DescribeShareGroupOffsets: the start offsets of share groups."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import GroupId, TopicName, int16, int32, int64, string, uuid


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: TopicName
    partitions: list[int32]


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: GroupId
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(nullable="0+")


class DescribeShareGroupOffsetsRequest(Message, api_key=90, versions="0-1", flexible="0+"):
    groups: list[DescribeShareGroupOffsetsRequestGroup]


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int32
    start_offset: int64
    leader_epoch: int32
    lag: int64 = field(versions="1+", default=-1)
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: TopicName
    topic_id: uuid
    partitions: list[DescribeShareGroupOffsetsResponsePartition]


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: GroupId
    topics: list[DescribeShareGroupOffsetsResponseTopic]
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)


class DescribeShareGroupOffsetsResponse(Message, api_key=90, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field(default_factory=list)
