"""AlterPartitionReassignments: new replicas for partitions, or the end of a move under way."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, TopicName, boolean, int16, int32, string


class ReassignablePartition(Struct):
    partition_index: int32
    replicas: list[BrokerId] | None = field(nullable="0+", default=None)


class ReassignableTopic(Struct):
    name: TopicName
    partitions: list[ReassignablePartition]


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions="0-1", flexible="0+"):
    timeout_ms: int32 = 60000
    allow_replication_factor_change: boolean = field(versions="1+", default=True)
    topics: list[ReassignableTopic]


class ReassignablePartitionResponse(Struct):
    partition_index: int32
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)


class ReassignableTopicResponse(Struct):
    name: TopicName
    partitions: list[ReassignablePartitionResponse]


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = 0
    allow_replication_factor_change: boolean = field(versions="1+", default=True)
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    responses: list[ReassignableTopicResponse] = field(default_factory=list)
