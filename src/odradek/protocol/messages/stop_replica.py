"""StopReplica: a ZooKeeper-mode controller tells brokers which replicas to stop or delete."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, TopicName, boolean, int16, int32, int64


class StopReplicaPartitionV0(Struct):
    topic_name: TopicName
    partition_index: int32


class StopReplicaTopicV1(Struct):
    name: TopicName
    partition_indexes: list[int32]


class StopReplicaPartitionState(Struct):
    partition_index: int32
    leader_epoch: int32 = -1
    delete_partition: boolean


class StopReplicaTopicState(Struct):
    topic_name: TopicName
    partition_states: list[StopReplicaPartitionState]


class StopReplicaRequest(Message, api_key=5, versions="0-4", flexible="2+"):
    controller_id: BrokerId
    is_kraft_controller: boolean = field(versions="4+", default=False)
    controller_epoch: int32
    broker_epoch: int64 = field(versions="1+", default=-1)
    delete_partitions: boolean = field(versions="0-2", default=False)
    ungrouped_partitions: list[StopReplicaPartitionV0] = field(versions="0", default_factory=list)
    topics: list[StopReplicaTopicV1] = field(versions="1-2", default_factory=list)
    topic_states: list[StopReplicaTopicState] = field(versions="3+", default_factory=list)


class StopReplicaPartitionError(Struct):
    topic_name: TopicName
    partition_index: int32
    error_code: int16 = 0


class StopReplicaResponse(Message, api_key=5, versions="0-4", flexible="2+"):
    error_code: int16 = 0
    partition_errors: list[StopReplicaPartitionError] = field(default_factory=list)
