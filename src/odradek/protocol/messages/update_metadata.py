"""UpdateMetadata: a ZooKeeper-mode controller tells brokers the state of the cluster."""

from __future__ import annotations

from odradek.ids import ZERO_UUID
from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, TopicName, boolean, int8, int16, int32, int64, string, uuid


class UpdateMetadataPartitionState(Struct):
    topic_name: TopicName = field(versions="0-4", default="")
    partition_index: int32
    controller_epoch: int32
    leader: BrokerId
    leader_epoch: int32
    isr: list[BrokerId]
    zk_version: int32
    replicas: list[BrokerId]
    offline_replicas: list[BrokerId] = field(versions="4+", default_factory=list)


class UpdateMetadataTopicState(Struct):
    topic_name: TopicName
    topic_id: uuid = field(versions="7+", default=ZERO_UUID)
    partition_states: list[UpdateMetadataPartitionState]


class UpdateMetadataEndpoint(Struct):
    port: int32
    host: string
    listener: string = field(versions="3+", default="")
    security_protocol: int16


class UpdateMetadataBroker(Struct):
    id: BrokerId
    v0_host: string = field(versions="0", default="")
    v0_port: int32 = field(versions="0", default=0)
    endpoints: list[UpdateMetadataEndpoint] = field(versions="1+", default_factory=list)
    rack: string | None = field(versions="2+", nullable="0+", default="")


class UpdateMetadataRequest(Message, api_key=6, versions="0-8", flexible="6+"):
    controller_id: BrokerId
    is_kraft_controller: boolean = field(versions="8+", default=False)
    type: int8 = field(versions="8+", tag=0, default=0)
    controller_epoch: int32
    broker_epoch: int64 = field(versions="5+", default=-1)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = field(versions="0-4", default_factory=list)
    topic_states: list[UpdateMetadataTopicState] = field(versions="5+", default_factory=list)
    live_brokers: list[UpdateMetadataBroker]


class UpdateMetadataResponse(Message, api_key=6, versions="0-8", flexible="6+"):
    error_code: int16 = 0
