"""ConsumerGroupHeartbeat: membership and assignment in a KIP-848 group."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import GroupId, TopicName, int16, int32, string, uuid


class TopicPartitions(Struct):
    topic_id: uuid
    partitions: list[int32]


class ConsumerGroupHeartbeatRequest(Message, api_key=68, versions="0-1", flexible="0+"):
    group_id: GroupId
    member_id: string
    member_epoch: int32
    instance_id: string | None = field(nullable="0+", default=None)
    rack_id: string | None = field(nullable="0+", default=None)
    rebalance_timeout_ms: int32 = -1
    subscribed_topic_names: list[TopicName] | None = field(nullable="0+", default=None)
    subscribed_topic_regex: string | None = field(versions="1+", nullable="1+", default=None)
    server_assignor: string | None = field(nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = field(nullable="0+", default=None)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class ConsumerGroupHeartbeatResponse(Message, api_key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    member_id: string | None = field(nullable="0+", default=None)
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    assignment: Assignment | None = field(nullable="0+", default=None)
