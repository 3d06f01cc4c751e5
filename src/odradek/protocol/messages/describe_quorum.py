"""DescribeQuorum: the raft leader's view of voters and observers."""

from __future__ import annotations

from odradek.ids import ZERO_UUID
from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, TopicName, int16, int32, int64, string, uint16, uuid


class RequestedPartitionData(Struct):
    partition_index: int32


class RequestedTopicData(Struct):
    topic_name: TopicName
    partitions: list[RequestedPartitionData]


class DescribeQuorumRequest(Message, api_key=55, versions="0-2", flexible="0+"):
    topics: list[RequestedTopicData]


class ReplicaState(Struct):
    replica_id: BrokerId
    replica_directory_id: uuid = field(versions="2+", default=ZERO_UUID)
    log_end_offset: int64
    last_fetch_timestamp: int64 = field(versions="1+", default=-1)
    last_caught_up_timestamp: int64 = field(versions="1+", default=-1)


class PartitionData(Struct):
    partition_index: int32
    error_code: int16 = 0
    error_message: string | None = field(versions="2+", nullable="2+", default="")
    leader_id: BrokerId
    leader_epoch: int32
    high_watermark: int64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


class TopicData(Struct):
    topic_name: TopicName
    partitions: list[PartitionData]


class Listener(Struct):
    name: string
    host: string
    port: uint16


class Node(Struct):
    node_id: BrokerId
    listeners: list[Listener]


class DescribeQuorumResponse(Message, api_key=55, versions="0-2", flexible="0+"):
    error_code: int16 = 0
    error_message: string | None = field(versions="2+", nullable="2+", default="")
    topics: list[TopicData] = field(default_factory=list)
    nodes: list[Node] = field(versions="2+", default_factory=list)
