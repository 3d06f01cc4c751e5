"""ShareGroupHeartbeat: membership and assignment in a share group."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import GroupId, TopicName, int16, int32, string, uuid


class ShareGroupHeartbeatRequest(Message, api_key=76, versions="1", flexible="0+"):
    group_id: GroupId
    member_id: string
    member_epoch: int32
    rack_id: string | None = field(nullable="0+", default=None)
    subscribed_topic_names: list[TopicName] | None = field(nullable="0+", default=None)


class TopicPartitions(Struct):
    topic_id: uuid
    partitions: list[int32]


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class ShareGroupHeartbeatResponse(Message, api_key=76, versions="1", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    member_id: string | None = field(nullable="0+", default=None)
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    assignment: Assignment | None = field(nullable="0+", default=None)
