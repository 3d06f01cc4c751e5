"""DeleteShareGroupState: the stored state of share partitions goes."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import int16, int32, string, uuid


class PartitionData(Struct):
    partition: int32


class DeleteStateData(Struct):
    topic_id: uuid
    partitions: list[PartitionData]


class DeleteShareGroupStateRequest(Message, api_key=86, versions="0", flexible="0+"):
    group_id: string
    topics: list[DeleteStateData]


class PartitionResult(Struct):
    partition: int32
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)


class DeleteStateResult(Struct):
    topic_id: uuid
    partitions: list[PartitionResult]


class DeleteShareGroupStateResponse(Message, api_key=86, versions="0", flexible="0+"):
    results: list[DeleteStateResult] = field(default_factory=list)
