"""ElectLeaders: an election, preferred or unclean, for partitions."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import TopicName, int8, int16, int32, string


class TopicPartitions(Struct):
    topic: TopicName
    partitions: list[int32]


class ElectLeadersRequest(Message, api_key=43, versions="0-2", flexible="2+"):
    election_type: int8 = field(versions="1+", default=0)
    topic_partitions: list[TopicPartitions] | None = field(nullable="0+")
    timeout_ms: int32 = 60000


class PartitionResult(Struct):
    partition_id: int32
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)


class ReplicaElectionResult(Struct):
    topic: TopicName
    partition_result: list[PartitionResult]


class ElectLeadersResponse(Message, api_key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = field(versions="1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = field(default_factory=list)
