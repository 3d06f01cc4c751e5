"""What the leader of a classic group writes for a member, read by the member and by administrators."""

from __future__ import annotations

import struct

from odradek.client.cluster import TopicPartition
from odradek.protocol.codec import decoder
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolAssignment

VERSION = struct.Struct(">h")
"""What stands before a subscription and an assignment."""


def read_assignment(data: bytes) -> list[TopicPartition]:
    """The partitions, none where nothing was written; raises MalformedFrame on anything else."""
    if len(data) < VERSION.size:
        return []
    version = min(VERSION.unpack_from(data)[0], ConsumerProtocolAssignment.versions.high)
    assignment, _ = decoder(ConsumerProtocolAssignment, version)(data, VERSION.size)
    return [
        TopicPartition(topic.topic, partition)
        for topic in assignment.assigned_partitions
        for partition in topic.partitions
    ]
