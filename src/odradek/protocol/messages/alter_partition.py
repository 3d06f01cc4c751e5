"""AlterPartition: a partition's leader asks the controller for another ISR."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, int8, int16, int32, int64, uuid


class BrokerState(Struct):
    broker_id: BrokerId
    broker_epoch: int64 = -1


class RequestedPartitionData(Struct):
    partition_index: int32
    leader_epoch: int32
    new_isr: list[BrokerId] = field(versions="0-2", default_factory=list)
    new_isr_with_epochs: list[BrokerState] = field(versions="3+", default_factory=list)
    leader_recovery_state: int8 = 0
    partition_epoch: int32


class RequestedTopicData(Struct):
    topic_id: uuid
    partitions: list[RequestedPartitionData]


class AlterPartitionRequest(Message, api_key=56, versions="2-3", flexible="0+"):
    broker_id: BrokerId
    broker_epoch: int64 = -1
    topics: list[RequestedTopicData]


class PartitionData(Struct):
    partition_index: int32
    error_code: int16 = 0
    leader_id: BrokerId
    leader_epoch: int32
    isr: list[BrokerId]
    leader_recovery_state: int8 = 0
    partition_epoch: int32


class TopicData(Struct):
    topic_id: uuid
    partitions: list[PartitionData]


class AlterPartitionResponse(Message, api_key=56, versions="2-3", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    topics: list[TopicData] = field(default_factory=list)
