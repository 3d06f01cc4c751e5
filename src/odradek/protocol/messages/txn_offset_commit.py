"""TxnOffsetCommit: a group's offsets, committed as part of a transaction."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import GroupId, ProducerId, TopicName, TransactionalId, int16, int32, int64, string


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int32
    committed_offset: int64
    committed_leader_epoch: int32 = field(versions="2+", default=-1)
    committed_metadata: string | None = field(nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    name: TopicName
    partitions: list[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequest(Message, api_key=28, versions="0-5", flexible="3+"):
    transactional_id: TransactionalId
    group_id: GroupId
    producer_id: ProducerId
    producer_epoch: int16
    generation_id: int32 = field(versions="3+", default=-1)
    member_id: string = field(versions="3+", default="")
    group_instance_id: string | None = field(versions="3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic]


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int32
    error_code: int16 = 0


class TxnOffsetCommitResponseTopic(Struct):
    name: TopicName
    partitions: list[TxnOffsetCommitResponsePartition]


class TxnOffsetCommitResponse(Message, api_key=28, versions="0-5", flexible="3+"):
    throttle_time_ms: int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = field(default_factory=list)
