"""The messages that members of a classic group pass each other through the coordinator, which does not read them."""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence

from odradek.client.cluster import TopicPartition, by_topic
from odradek.client.consumer.assignors import MemberSubscription
from odradek.client.group_assignment import VERSION
from odradek.protocol.codec import decoder, encode
from odradek.protocol.errors import MalformedFrame
from odradek.protocol.messages.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
)
from odradek.protocol.messages.join_group import JoinGroupResponseMember

_SUBSCRIPTION_VERSION = 3
_ASSIGNMENT_VERSION = 0
"""The oldest one says all there is to say, and every client reads it."""

_GENERATION = struct.Struct(">i")


def write_subscription(
    topics: Sequence[str],
    *,
    owned: Collection[TopicPartition],
    generation_id: int,
    rack: str | None,
    is_cooperative: bool,
) -> bytes:
    """What a member tells the leader. Older Java clients look for the generation in the sticky assignor's user data."""
    subscription = ConsumerProtocolSubscription(
        topics=list(topics),
        user_data=_GENERATION.pack(generation_id) if is_cooperative else None,
        owned_partitions=[
            SubscriptionTopicPartition(topic=topic, partitions=some) for topic, some in by_topic(owned).items()
        ],
        generation_id=generation_id,
        rack_id=rack,
    )
    return VERSION.pack(_SUBSCRIPTION_VERSION) + encode(subscription, _SUBSCRIPTION_VERSION)


def read_subscription(member: JoinGroupResponseMember) -> MemberSubscription:
    """What a member told; a member whose words make no sense is taken to want nothing."""
    data = member.metadata
    try:
        version = min(VERSION.unpack_from(data)[0], _SUBSCRIPTION_VERSION)
        heard, _ = decoder(ConsumerProtocolSubscription, version)(data, VERSION.size)
    except (MalformedFrame, struct.error):
        heard = ConsumerProtocolSubscription(topics=[])
    generation_id = heard.generation_id
    if generation_id < 0 and heard.user_data is not None and len(heard.user_data) == _GENERATION.size:
        (generation_id,) = _GENERATION.unpack(heard.user_data)
    return MemberSubscription(
        member_id=member.member_id,
        topics=tuple(heard.topics),
        group_instance_id=member.group_instance_id,
        owned=tuple(
            TopicPartition(topic.topic, partition) for topic in heard.owned_partitions for partition in topic.partitions
        ),
        generation_id=generation_id,
    )


def write_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    """What the leader tells a member."""
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignmentTopicPartition(topic=topic, partitions=some) for topic, some in by_topic(partitions).items()
        ]
    )
    return VERSION.pack(_ASSIGNMENT_VERSION) + encode(assignment, _ASSIGNMENT_VERSION)
