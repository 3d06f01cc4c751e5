"""FetchSnapshot: a piece of a metadata snapshot."""

from __future__ import annotations

from odradek.ids import ZERO_UUID
from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, TopicName, int16, int32, int64, records, string, uint16, uuid


class SnapshotId(Struct):
    end_offset: int64
    epoch: int32


class RequestedPartitionSnapshot(Struct):
    partition: int32
    current_leader_epoch: int32
    snapshot_id: SnapshotId
    position: int64
    replica_directory_id: uuid = field(versions="1+", tag=0, default=ZERO_UUID)


class RequestedTopicSnapshot(Struct):
    name: TopicName
    partitions: list[RequestedPartitionSnapshot]


class FetchSnapshotRequest(Message, api_key=59, versions="0-1", flexible="0+"):
    cluster_id: string | None = field(nullable="0+", tag=0, default=None)
    replica_id: BrokerId = -1
    max_bytes: int32 = 0x7FFFFFFF
    topics: list[RequestedTopicSnapshot]


class LeaderIdAndEpoch(Struct):
    leader_id: BrokerId = 0
    leader_epoch: int32 = 0


class PartitionSnapshot(Struct):
    index: int32
    error_code: int16 = 0
    snapshot_id: SnapshotId
    current_leader: LeaderIdAndEpoch = field(tag=0, default_factory=LeaderIdAndEpoch)
    size: int64
    position: int64
    unaligned_records: records


class TopicSnapshot(Struct):
    name: TopicName
    partitions: list[PartitionSnapshot]


class NodeEndpoint(Struct):
    node_id: BrokerId
    host: string
    port: uint16


class FetchSnapshotResponse(Message, api_key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    topics: list[TopicSnapshot] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(versions="1+", tag=0, default_factory=list)
