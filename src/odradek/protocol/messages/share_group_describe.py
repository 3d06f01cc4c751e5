"""ShareGroupDescribe: state and members of share groups."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import GroupId, TopicName, boolean, int16, int32, string, uuid


class ShareGroupDescribeRequest(Message, api_key=77, versions="1", flexible="0+"):
    group_ids: list[GroupId]
    include_authorized_operations: boolean


class TopicPartitions(Struct):
    topic_id: uuid
    topic_name: TopicName
    partitions: list[int32]


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class Member(Struct):
    member_id: string
    rack_id: string | None = field(nullable="0+", default=None)
    member_epoch: int32
    client_id: string
    client_host: string
    subscribed_topic_names: list[TopicName]
    assignment: Assignment


class DescribedGroup(Struct):
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    group_id: GroupId
    group_state: string
    group_epoch: int32
    assignment_epoch: int32
    assignor_name: string
    members: list[Member]
    authorized_operations: int32 = -2147483648


class ShareGroupDescribeResponse(Message, api_key=77, versions="1", flexible="0+"):
    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup] = field(default_factory=list)
