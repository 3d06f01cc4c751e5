"""Keys and values of `__consumer_offsets` for share groups."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import int8, int32, int64, string, uuid


class ShareGroupMemberMetadataKey(Message, api_key=10, versions="0"):
    group_id: string
    member_id: string


class ShareGroupMemberMetadataValue(Message, api_key=10, versions="0", flexible="0+"):
    rack_id: string | None = field(nullable="0+")
    client_id: string
    client_host: string
    subscribed_topic_names: list[string]


class ShareGroupMetadataKey(Message, api_key=11, versions="0"):
    group_id: string


class ShareGroupMetadataValue(Message, api_key=11, versions="0", flexible="0+"):
    epoch: int32
    metadata_hash: int64


class ShareGroupTargetAssignmentMetadataKey(Message, api_key=12, versions="0"):
    group_id: string


class ShareGroupTargetAssignmentMetadataValue(Message, api_key=12, versions="0", flexible="0+"):
    assignment_epoch: int32
    assignment_timestamp: int64 = field(tag=0, default=0)


class ShareGroupTargetAssignmentMemberKey(Message, api_key=13, versions="0"):
    group_id: string
    member_id: string


class TopicPartition(Struct):
    topic_id: uuid
    partitions: list[int32]


class ShareGroupTargetAssignmentMemberValue(Message, api_key=13, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition]


class ShareGroupCurrentMemberAssignmentKey(Message, api_key=14, versions="0"):
    group_id: string
    member_id: string


class TopicPartitions(Struct):
    topic_id: uuid
    partitions: list[int32]


class ShareGroupCurrentMemberAssignmentValue(Message, api_key=14, versions="0", flexible="0+"):
    member_epoch: int32
    previous_member_epoch: int32
    state: int8
    assigned_partitions: list[TopicPartitions]


class ShareGroupStatePartitionMetadataKey(Message, api_key=15, versions="0"):
    group_id: string


class TopicPartitionsInfo(Struct):
    topic_id: uuid
    topic_name: string
    partitions: list[int32]


class TopicInfo(Struct):
    topic_id: uuid
    topic_name: string


class ShareGroupStatePartitionMetadataValue(Message, api_key=15, versions="0", flexible="0+"):
    initializing_topics: list[TopicPartitionsInfo]
    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[TopicInfo]
