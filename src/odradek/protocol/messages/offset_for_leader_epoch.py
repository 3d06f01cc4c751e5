"""OffsetForLeaderEpoch: where an epoch of a partition's leader ends."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, TopicName, int16, int32, int64


class OffsetForLeaderPartition(Struct):
    partition: int32
    current_leader_epoch: int32 = -1
    leader_epoch: int32


class OffsetForLeaderTopic(Struct):
    topic: TopicName
    partitions: list[OffsetForLeaderPartition]


class OffsetForLeaderEpochRequest(Message, api_key=23, versions="2-4", flexible="4+"):
    replica_id: BrokerId = field(versions="3+", default=-2)
    topics: list[OffsetForLeaderTopic]


class EpochEndOffset(Struct):
    error_code: int16 = 0
    partition: int32
    leader_epoch: int32 = -1
    end_offset: int64 = -1


class OffsetForLeaderTopicResult(Struct):
    topic: TopicName
    partitions: list[EpochEndOffset]


class OffsetForLeaderEpochResponse(Message, api_key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: int32 = 0
    topics: list[OffsetForLeaderTopicResult] = field(default_factory=list)
