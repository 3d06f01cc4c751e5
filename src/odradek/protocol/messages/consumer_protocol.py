"""What members of a classic consumer group tell each other through JoinGroup and SyncGroup; opaque to the broker."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import TopicName, bytes_, int32, string


class SubscriptionTopicPartition(Struct):
    topic: TopicName
    partitions: list[int32]


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: list[string]
    user_data: bytes_ | None = field(nullable="0+", default=None)
    owned_partitions: list[SubscriptionTopicPartition] = field(versions="1+", default_factory=list)
    generation_id: int32 = field(versions="2+", default=-1)
    rack_id: string | None = field(versions="3+", nullable="3+", default=None)


class AssignmentTopicPartition(Struct):
    topic: TopicName
    partitions: list[int32]


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[AssignmentTopicPartition]
    user_data: bytes_ | None = field(nullable="0+", default=None)
