"""AssignReplicasToDirs: a broker tells the controller which log directory holds which replica."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, int16, int32, int64, uuid


class RequestedPartitionData(Struct):
    partition_index: int32


class RequestedTopicData(Struct):
    topic_id: uuid
    partitions: list[RequestedPartitionData]


class RequestedDirectoryData(Struct):
    id: uuid
    topics: list[RequestedTopicData]


class AssignReplicasToDirsRequest(Message, api_key=73, versions="0", flexible="0+"):
    broker_id: BrokerId
    broker_epoch: int64 = -1
    directories: list[RequestedDirectoryData]


class PartitionData(Struct):
    partition_index: int32
    error_code: int16 = 0


class TopicData(Struct):
    topic_id: uuid
    partitions: list[PartitionData]


class DirectoryData(Struct):
    id: uuid
    topics: list[TopicData]


class AssignReplicasToDirsResponse(Message, api_key=73, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    directories: list[DirectoryData] = field(default_factory=list)
