"""Vote: a candidate, or one that would become it, asks for a vote (KIP-595, KIP-996)."""

from __future__ import annotations

from odradek.ids import ZERO_UUID
from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, TopicName, boolean, int16, int32, int64, string, uint16, uuid


class RequestedPartitionData(Struct):
    partition_index: int32
    replica_epoch: int32
    replica_id: BrokerId
    replica_directory_id: uuid = field(versions="1+", default=ZERO_UUID)
    voter_directory_id: uuid = field(versions="1+", default=ZERO_UUID)
    last_offset_epoch: int32
    last_offset: int64
    pre_vote: boolean = field(versions="2+", default=False)


class RequestedTopicData(Struct):
    topic_name: TopicName
    partitions: list[RequestedPartitionData]


class VoteRequest(Message, api_key=52, versions="0-2", flexible="0+"):
    cluster_id: string | None = field(nullable="0+", default=None)
    voter_id: BrokerId = field(versions="1+", default=-1)
    topics: list[RequestedTopicData]


class PartitionData(Struct):
    partition_index: int32
    error_code: int16 = 0
    leader_id: BrokerId
    leader_epoch: int32
    vote_granted: boolean


class TopicData(Struct):
    topic_name: TopicName
    partitions: list[PartitionData]


class NodeEndpoint(Struct):
    node_id: BrokerId
    host: string
    port: uint16


class VoteResponse(Message, api_key=52, versions="0-2", flexible="0+"):
    error_code: int16 = 0
    topics: list[TopicData] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(versions="1+", tag=0, default_factory=list)
