"""OffsetCommit: a group's offsets, stored."""

from __future__ import annotations

from odradek.ids import ZERO_UUID
from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import GroupId, TopicName, int16, int32, int64, string, uuid


class OffsetCommitRequestPartition(Struct):
    partition_index: int32
    committed_offset: int64
    committed_leader_epoch: int32 = field(versions="6+", default=-1)
    committed_metadata: string | None = field(nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: TopicName = field(versions="0-9", default="")
    topic_id: uuid = field(versions="10+", default=ZERO_UUID)
    partitions: list[OffsetCommitRequestPartition]


class OffsetCommitRequest(Message, api_key=8, versions="2-10", flexible="8+"):
    group_id: GroupId
    generation_id_or_member_epoch: int32 = -1
    member_id: string
    group_instance_id: string | None = field(versions="7+", nullable="7+", default=None)
    retention_time_ms: int64 = field(versions="2-4", default=-1)
    topics: list[OffsetCommitRequestTopic]


class OffsetCommitResponsePartition(Struct):
    partition_index: int32
    error_code: int16 = 0


class OffsetCommitResponseTopic(Struct):
    name: TopicName = field(versions="0-9", default="")
    topic_id: uuid = field(versions="10+", default=ZERO_UUID)
    partitions: list[OffsetCommitResponsePartition]


class OffsetCommitResponse(Message, api_key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: int32 = field(versions="3+", default=0)
    topics: list[OffsetCommitResponseTopic] = field(default_factory=list)
