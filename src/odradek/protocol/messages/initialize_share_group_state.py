"""InitializeShareGroupState: the stored state of share partitions, begun."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import int16, int32, int64, string, uuid


class PartitionData(Struct):
    partition: int32
    state_epoch: int32
    start_offset: int64


class InitializeStateData(Struct):
    topic_id: uuid
    partitions: list[PartitionData]


class InitializeShareGroupStateRequest(Message, api_key=83, versions="0", flexible="0+"):
    group_id: string
    topics: list[InitializeStateData]


class PartitionResult(Struct):
    partition: int32
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)


class InitializeStateResult(Struct):
    topic_id: uuid
    partitions: list[PartitionResult]


class InitializeShareGroupStateResponse(Message, api_key=83, versions="0", flexible="0+"):
    results: list[InitializeStateResult] = field(default_factory=list)
