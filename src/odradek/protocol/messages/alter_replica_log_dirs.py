"""AlterReplicaLogDirs: replicas move to other log directories of their broker."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import TopicName, int16, int32, string


class AlterReplicaLogDirTopic(Struct):
    name: TopicName
    partitions: list[int32]


class AlterReplicaLogDir(Struct):
    path: string
    topics: list[AlterReplicaLogDirTopic]


class AlterReplicaLogDirsRequest(Message, api_key=34, versions="1-2", flexible="2+"):
    dirs: list[AlterReplicaLogDir]


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int32
    error_code: int16 = 0


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: TopicName
    partitions: list[AlterReplicaLogDirPartitionResult]


class AlterReplicaLogDirsResponse(Message, api_key=34, versions="1-2", flexible="2+"):
    throttle_time_ms: int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = field(default_factory=list)
