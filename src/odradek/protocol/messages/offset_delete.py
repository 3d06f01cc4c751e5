"""OffsetDelete: stored offsets of a group to delete."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import GroupId, TopicName, int16, int32


class OffsetDeleteRequestPartition(Struct):
    partition_index: int32


class OffsetDeleteRequestTopic(Struct):
    name: TopicName
    partitions: list[OffsetDeleteRequestPartition]


class OffsetDeleteRequest(Message, api_key=47, versions="0"):
    group_id: GroupId
    topics: list[OffsetDeleteRequestTopic]


class OffsetDeleteResponsePartition(Struct):
    partition_index: int32
    error_code: int16 = 0


class OffsetDeleteResponseTopic(Struct):
    name: TopicName
    partitions: list[OffsetDeleteResponsePartition]


class OffsetDeleteResponse(Message, api_key=47, versions="0"):
    error_code: int16 = 0
    throttle_time_ms: int32 = 0
    topics: list[OffsetDeleteResponseTopic] = field(default_factory=list)
