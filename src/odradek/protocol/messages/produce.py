"""Produce: record batches for partitions, and where they were put."""

from __future__ import annotations

from odradek.ids import ZERO_UUID
from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, TopicName, TransactionalId, int16, int32, int64, records, string, uuid


class PartitionProduceData(Struct):
    index: int32
    records: records | None = field(nullable="0+")


class TopicProduceData(Struct):
    name: TopicName = field(versions="0-12", default="")
    topic_id: uuid = field(versions="13+", default=ZERO_UUID)
    partition_data: list[PartitionProduceData]


class ProduceRequest(Message, api_key=0, versions="3-13", flexible="9+"):
    transactional_id: TransactionalId | None = field(nullable="3+", default=None)
    acks: int16
    timeout_ms: int32
    topic_data: list[TopicProduceData]


class BatchIndexAndErrorMessage(Struct):
    batch_index: int32
    batch_index_error_message: string | None = field(nullable="8+", default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: BrokerId = -1
    leader_epoch: int32 = -1


class PartitionProduceResponse(Struct):
    index: int32
    error_code: int16 = 0
    base_offset: int64
    log_append_time_ms: int64 = -1
    log_start_offset: int64 = field(versions="5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field(versions="8+", default_factory=list)
    error_message: string | None = field(versions="8+", nullable="8+", default=None)
    current_leader: LeaderIdAndEpoch = field(versions="10+", tag=0, default_factory=LeaderIdAndEpoch)


class TopicProduceResponse(Struct):
    name: TopicName = field(versions="0-12", default="")
    topic_id: uuid = field(versions="13+", default=ZERO_UUID)
    partition_responses: list[PartitionProduceResponse]


class NodeEndpoint(Struct):
    node_id: BrokerId
    host: string
    port: int32
    rack: string | None = field(nullable="10+", default=None)


class ProduceResponse(Message, api_key=0, versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse] = field(default_factory=list)
    throttle_time_ms: int32 = 0
    node_endpoints: list[NodeEndpoint] = field(versions="10+", tag=0, default_factory=list)
