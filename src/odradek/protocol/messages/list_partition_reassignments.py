"""ListPartitionReassignments: the moves under way."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, TopicName, int16, int32, string


class ListPartitionReassignmentsTopics(Struct):
    name: TopicName
    partition_indexes: list[int32]


class ListPartitionReassignmentsRequest(Message, api_key=46, versions="0", flexible="0+"):
    timeout_ms: int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = field(nullable="0+", default=None)


class OngoingPartitionReassignment(Struct):
    partition_index: int32
    replicas: list[BrokerId]
    adding_replicas: list[BrokerId]
    removing_replicas: list[BrokerId]


class OngoingTopicReassignment(Struct):
    name: TopicName
    partitions: list[OngoingPartitionReassignment]


class ListPartitionReassignmentsResponse(Message, api_key=46, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    topics: list[OngoingTopicReassignment] = field(default_factory=list)
