"""Keys and values of `__consumer_offsets` for classic and KIP-848 groups and for offsets.

A key starts with two bytes that say its kind (`api_key`), a value with two bytes that say its version.
"""

from __future__ import annotations

from odradek.ids import ZERO_UUID
from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import bytes_, int8, int32, int64, string, uuid


class LegacyOffsetCommitKey(Message, api_key=0, versions="0"):
    group: string
    topic: string
    partition: int32


class LegacyOffsetCommitValue(Message, api_key=0, versions="0"):
    offset: int64
    metadata: string
    commit_timestamp: int64


class OffsetCommitKey(Message, api_key=1, versions="0"):
    group: string
    topic: string
    partition: int32


class OffsetCommitValue(Message, api_key=1, versions="0-4", flexible="4+"):
    offset: int64
    leader_epoch: int32 = field(versions="3+", default=-1)
    metadata: string
    commit_timestamp: int64
    expire_timestamp: int64 = field(versions="1", default=-1)
    topic_id: uuid = field(versions="4+", tag=0, default=ZERO_UUID)


class GroupMetadataKey(Message, api_key=2, versions="0"):
    group: string


class MemberMetadata(Struct):
    member_id: string
    group_instance_id: string | None = field(versions="3+", nullable="3+", default=None)
    client_id: string
    client_host: string
    rebalance_timeout: int32 = field(versions="1+", default=-1)
    session_timeout: int32
    subscription: bytes_
    assignment: bytes_


class GroupMetadataValue(Message, api_key=2, versions="0-4", flexible="4+"):
    protocol_type: string
    generation: int32
    protocol: string | None = field(nullable="0+")
    leader: string | None = field(nullable="0+")
    current_state_timestamp: int64 = field(versions="2+", default=-1)
    members: list[MemberMetadata]


class ConsumerGroupMetadataKey(Message, api_key=3, versions="0"):
    group_id: string


class ConsumerGroupMetadataValue(Message, api_key=3, versions="0", flexible="0+"):
    epoch: int32
    metadata_hash: int64 = field(tag=0, default=0)


class ConsumerGroupPartitionMetadataKey(Message, api_key=4, versions="0"):
    group_id: string


class PartitionMetadata(Struct):
    partition: int32
    racks: list[string]


class TopicMetadata(Struct):
    topic_id: uuid
    topic_name: string
    num_partitions: int32
    partition_metadata: list[PartitionMetadata]


class ConsumerGroupPartitionMetadataValue(Message, api_key=4, versions="0", flexible="0+"):
    topics: list[TopicMetadata]


class ConsumerGroupMemberMetadataKey(Message, api_key=5, versions="0"):
    group_id: string
    member_id: string


class ClassicProtocol(Struct):
    name: string
    metadata: bytes_


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int32 = 0
    supported_protocols: list[ClassicProtocol] = field(default_factory=list)


class ConsumerGroupMemberMetadataValue(Message, api_key=5, versions="0", flexible="0+"):
    instance_id: string | None = field(nullable="0+")
    rack_id: string | None = field(nullable="0+")
    client_id: string
    client_host: string
    subscribed_topic_names: list[string]
    subscribed_topic_regex: string | None = field(nullable="0+")
    rebalance_timeout_ms: int32 = -1
    server_assignor: string | None = field(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = field(
        nullable="0+", tag=0, default_factory=ClassicMemberMetadata
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message, api_key=6, versions="0"):
    group_id: string


class ConsumerGroupTargetAssignmentMetadataValue(Message, api_key=6, versions="0", flexible="0+"):
    assignment_epoch: int32
    assignment_timestamp: int64 = field(tag=0, default=0)


class ConsumerGroupTargetAssignmentMemberKey(Message, api_key=7, versions="0"):
    group_id: string
    member_id: string


class TopicPartition(Struct):
    topic_id: uuid
    partitions: list[int32]


class ConsumerGroupTargetAssignmentMemberValue(Message, api_key=7, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition]


class ConsumerGroupCurrentMemberAssignmentKey(Message, api_key=8, versions="0"):
    group_id: string
    member_id: string


class TopicPartitions(Struct):
    topic_id: uuid
    partitions: list[int32]
    assignment_epochs: list[int32] | None = field(nullable="0+", tag=0, default_factory=list)


class ConsumerGroupCurrentMemberAssignmentValue(Message, api_key=8, versions="0", flexible="0+"):
    member_epoch: int32
    previous_member_epoch: int32
    state: int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


class ConsumerGroupRegularExpressionKey(Message, api_key=16, versions="0"):
    group_id: string
    regular_expression: string


class ConsumerGroupRegularExpressionValue(Message, api_key=16, versions="0", flexible="0+"):
    topics: list[string]
    version: int64
    timestamp: int64
