"""ReadShareGroupState: the stored state of share partitions."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import int8, int16, int32, int64, string, uuid


class PartitionData(Struct):
    partition: int32
    leader_epoch: int32


class ReadStateData(Struct):
    topic_id: uuid
    partitions: list[PartitionData]


class ReadShareGroupStateRequest(Message, api_key=84, versions="0", flexible="0+"):
    group_id: string
    topics: list[ReadStateData]


class StateBatch(Struct):
    first_offset: int64
    last_offset: int64
    delivery_state: int8
    delivery_count: int16


class PartitionResult(Struct):
    partition: int32
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    state_epoch: int32
    start_offset: int64
    state_batches: list[StateBatch]


class ReadStateResult(Struct):
    topic_id: uuid
    partitions: list[PartitionResult]


class ReadShareGroupStateResponse(Message, api_key=84, versions="0", flexible="0+"):
    results: list[ReadStateResult] = field(default_factory=list)
