"""DescribeTopicPartitions: partitions of topics, a page at a time."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, TopicName, boolean, int16, int32, uuid


class TopicRequest(Struct):
    name: TopicName


class Cursor(Struct):
    topic_name: TopicName
    partition_index: int32


class DescribeTopicPartitionsRequest(Message, api_key=75, versions="0", flexible="0+"):
    topics: list[TopicRequest]
    response_partition_limit: int32 = 2000
    cursor: Cursor | None = field(nullable="0+", default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int16 = 0
    partition_index: int32
    leader_id: BrokerId
    leader_epoch: int32 = -1
    replica_nodes: list[BrokerId]
    isr_nodes: list[BrokerId]
    eligible_leader_replicas: list[BrokerId] | None = field(nullable="0+", default=None)
    last_known_elr: list[BrokerId] | None = field(nullable="0+", default=None)
    offline_replicas: list[BrokerId]


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int16 = 0
    name: TopicName | None = field(nullable="0+")
    topic_id: uuid
    is_internal: boolean = False
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: int32 = -2147483648


class DescribeTopicPartitionsResponse(Message, api_key=75, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = field(default_factory=list)
    next_cursor: Cursor | None = field(nullable="0+", default=None)
