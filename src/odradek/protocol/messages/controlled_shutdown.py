"""ControlledShutdown: a ZooKeeper-mode broker asks to hand over its leaderships before it stops."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, TopicName, int16, int32, int64


class ControlledShutdownRequest(Message, api_key=7, versions="0-3", flexible="3+"):
    broker_id: BrokerId
    broker_epoch: int64 = field(versions="2+", default=-1)


class RemainingPartition(Struct):
    topic_name: TopicName
    partition_index: int32


class ControlledShutdownResponse(Message, api_key=7, versions="0-3", flexible="3+"):
    error_code: int16 = 0
    remaining_partitions: list[RemainingPartition] = field(default_factory=list)
