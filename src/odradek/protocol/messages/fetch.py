"""Fetch: record batches from partitions, for consumers, followers and raft observers alike."""

from __future__ import annotations

from odradek.ids import ZERO_UUID
from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import (
    BrokerId,
    ProducerId,
    TopicName,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    uuid,
)


class ReplicaState(Struct):
    replica_id: BrokerId = -1
    replica_epoch: int64 = -1


class FetchPartition(Struct):
    partition: int32
    current_leader_epoch: int32 = field(versions="9+", default=-1)
    fetch_offset: int64
    last_fetched_epoch: int32 = field(versions="12+", default=-1)
    log_start_offset: int64 = field(versions="5+", default=-1)
    partition_max_bytes: int32
    replica_directory_id: uuid = field(versions="17+", tag=0, default=ZERO_UUID)
    high_watermark: int64 = field(versions="18+", tag=1, default=9223372036854775807)


class FetchTopic(Struct):
    topic: TopicName = field(versions="0-12", default="")
    topic_id: uuid = field(versions="13+", default=ZERO_UUID)
    partitions: list[FetchPartition]


class ForgottenTopic(Struct):
    topic: TopicName = field(versions="7-12", default="")
    topic_id: uuid = field(versions="13+", default=ZERO_UUID)
    partitions: list[int32]


class FetchRequest(Message, api_key=1, versions="4-18", flexible="12+"):
    cluster_id: string | None = field(versions="12+", nullable="12+", tag=0, default=None)
    replica_id: BrokerId = field(versions="0-14", default=-1)
    replica_state: ReplicaState = field(versions="15+", tag=1, default_factory=ReplicaState)
    max_wait_ms: int32
    min_bytes: int32
    max_bytes: int32 = 0x7FFFFFFF
    isolation_level: int8 = 0
    session_id: int32 = field(versions="7+", default=0)
    session_epoch: int32 = field(versions="7+", default=-1)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = field(versions="7+", default_factory=list)
    rack_id: string = field(versions="11+", default="")


class EpochEndOffset(Struct):
    epoch: int32 = -1
    end_offset: int64 = -1


class LeaderIdAndEpoch(Struct):
    leader_id: BrokerId = -1
    leader_epoch: int32 = -1


class SnapshotId(Struct):
    end_offset: int64 = -1
    epoch: int32 = -1


class AbortedTransaction(Struct):
    producer_id: ProducerId
    first_offset: int64


class PartitionData(Struct):
    partition_index: int32
    error_code: int16 = 0
    high_watermark: int64
    last_stable_offset: int64 = -1
    log_start_offset: int64 = field(versions="5+", default=-1)
    diverging_epoch: EpochEndOffset = field(versions="12+", tag=0, default_factory=EpochEndOffset)
    current_leader: LeaderIdAndEpoch = field(versions="12+", tag=1, default_factory=LeaderIdAndEpoch)
    snapshot_id: SnapshotId = field(versions="12+", tag=2, default_factory=SnapshotId)
    aborted_transactions: list[AbortedTransaction] | None = field(nullable="4+")
    preferred_read_replica: BrokerId = field(versions="11+", default=-1)
    records: records | None = field(nullable="0+")


class FetchableTopicResponse(Struct):
    topic: TopicName = field(versions="0-12", default="")
    topic_id: uuid = field(versions="13+", default=ZERO_UUID)
    partitions: list[PartitionData]


class NodeEndpoint(Struct):
    node_id: BrokerId
    host: string
    port: int32
    rack: string | None = field(nullable="16+", default=None)


class FetchResponse(Message, api_key=1, versions="4-18", flexible="12+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = field(versions="7+", default=0)
    session_id: int32 = field(versions="7+", default=0)
    responses: list[FetchableTopicResponse] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(versions="16+", tag=0, default_factory=list)
