"""WriteShareGroupState: new state of share partitions."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import int8, int16, int32, int64, string, uuid


class StateBatch(Struct):
    first_offset: int64
    last_offset: int64
    delivery_state: int8
    delivery_count: int16


class PartitionData(Struct):
    partition: int32
    state_epoch: int32
    leader_epoch: int32
    start_offset: int64
    delivery_complete_count: int32 = field(versions="1+", default=-1)
    state_batches: list[StateBatch]


class WriteStateData(Struct):
    topic_id: uuid
    partitions: list[PartitionData]


class WriteShareGroupStateRequest(Message, api_key=85, versions="0-1", flexible="0+"):
    group_id: string
    topics: list[WriteStateData]


class PartitionResult(Struct):
    partition: int32
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)


class WriteStateResult(Struct):
    topic_id: uuid
    partitions: list[PartitionResult]


class WriteShareGroupStateResponse(Message, api_key=85, versions="0-1", flexible="0+"):
    results: list[WriteStateResult] = field(default_factory=list)
