"""CreatePartitions: more partitions for a topic."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, TopicName, boolean, int16, int32, string


class CreatePartitionsAssignment(Struct):
    broker_ids: list[BrokerId]


class CreatePartitionsTopic(Struct):
    name: TopicName
    count: int32
    assignments: list[CreatePartitionsAssignment] | None = field(nullable="0+")


class CreatePartitionsRequest(Message, api_key=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic]
    timeout_ms: int32
    validate_only: boolean


class CreatePartitionsTopicResult(Struct):
    name: TopicName
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)


class CreatePartitionsResponse(Message, api_key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int32 = 0
    results: list[CreatePartitionsTopicResult] = field(default_factory=list)
