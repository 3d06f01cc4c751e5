"""ReadShareGroupStateSummary: the start offsets in the stored state of share partitions."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import int16, int32, int64, string, uuid


class PartitionData(Struct):
    partition: int32
    leader_epoch: int32


class ReadStateSummaryData(Struct):
    topic_id: uuid
    partitions: list[PartitionData]


class ReadShareGroupStateSummaryRequest(Message, api_key=87, versions="0-1", flexible="0+"):
    group_id: string
    topics: list[ReadStateSummaryData]


class PartitionResult(Struct):
    partition: int32
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    state_epoch: int32
    leader_epoch: int32
    start_offset: int64
    delivery_complete_count: int32 = field(versions="1+", default=-1)


class ReadStateSummaryResult(Struct):
    topic_id: uuid
    partitions: list[PartitionResult]


class ReadShareGroupStateSummaryResponse(Message, api_key=87, versions="0-1", flexible="0+"):
    results: list[ReadStateSummaryResult] = field(default_factory=list)
