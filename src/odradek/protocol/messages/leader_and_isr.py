"""LeaderAndIsr: a ZooKeeper-mode controller tells brokers what they lead and follow."""

from __future__ import annotations

from odradek.ids import ZERO_UUID
from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, TopicName, boolean, int8, int16, int32, int64, string, uuid


class LeaderAndIsrPartitionState(Struct):
    topic_name: TopicName = field(versions="0-1", default="")
    partition_index: int32
    controller_epoch: int32
    leader: BrokerId
    leader_epoch: int32
    isr: list[BrokerId]
    partition_epoch: int32
    replicas: list[BrokerId]
    adding_replicas: list[BrokerId] = field(versions="3+", default_factory=list)
    removing_replicas: list[BrokerId] = field(versions="3+", default_factory=list)
    is_new: boolean = field(versions="1+", default=False)
    leader_recovery_state: int8 = field(versions="6+", default=0)


class LeaderAndIsrTopicState(Struct):
    topic_name: TopicName
    topic_id: uuid = field(versions="5+", default=ZERO_UUID)
    partition_states: list[LeaderAndIsrPartitionState]


class LeaderAndIsrLiveLeader(Struct):
    broker_id: BrokerId
    host_name: string
    port: int32


class LeaderAndIsrRequest(Message, api_key=4, versions="0-7", flexible="4+"):
    controller_id: BrokerId
    is_kraft_controller: boolean = field(versions="7+", default=False)
    controller_epoch: int32
    broker_epoch: int64 = field(versions="2+", default=-1)
    type: int8 = field(versions="5+", default=0)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = field(versions="0-1", default_factory=list)
    topic_states: list[LeaderAndIsrTopicState] = field(versions="2+", default_factory=list)
    live_leaders: list[LeaderAndIsrLiveLeader]


class LeaderAndIsrPartitionError(Struct):
    topic_name: TopicName = field(versions="0-4", default="")
    partition_index: int32
    error_code: int16 = 0


class LeaderAndIsrTopicError(Struct):
    topic_id: uuid
    partition_errors: list[LeaderAndIsrPartitionError]


class LeaderAndIsrResponse(Message, api_key=4, versions="0-7", flexible="4+"):
    error_code: int16 = 0
    partition_errors: list[LeaderAndIsrPartitionError] = field(versions="0-4", default_factory=list)
    topics: list[LeaderAndIsrTopicError] = field(versions="5+", default_factory=list)
