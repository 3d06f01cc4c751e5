"""BeginQuorumEpoch: a new raft leader announces itself to the voters."""

from __future__ import annotations

from odradek.ids import ZERO_UUID
from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, TopicName, int16, int32, string, uint16, uuid


class RequestedPartitionData(Struct):
    partition_index: int32
    voter_directory_id: uuid = field(versions="1+", default=ZERO_UUID)
    leader_id: BrokerId
    leader_epoch: int32


class RequestedTopicData(Struct):
    topic_name: TopicName
    partitions: list[RequestedPartitionData]


class LeaderEndpoint(Struct):
    name: string
    host: string
    port: uint16


class BeginQuorumEpochRequest(Message, api_key=53, versions="0-1", flexible="1+"):
    cluster_id: string | None = field(nullable="0+", default=None)
    voter_id: BrokerId = field(versions="1+", default=-1)
    topics: list[RequestedTopicData]
    leader_endpoints: list[LeaderEndpoint] = field(versions="1+", default_factory=list)


class PartitionData(Struct):
    partition_index: int32
    error_code: int16 = 0
    leader_id: BrokerId
    leader_epoch: int32


class TopicData(Struct):
    topic_name: TopicName
    partitions: list[PartitionData]


class NodeEndpoint(Struct):
    node_id: BrokerId
    host: string
    port: uint16


class BeginQuorumEpochResponse(Message, api_key=53, versions="0-1", flexible="1+"):
    error_code: int16 = 0
    topics: list[TopicData] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(versions="1+", tag=0, default_factory=list)
