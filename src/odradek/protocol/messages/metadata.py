"""Metadata: brokers, topics, partitions and their leaders."""

from __future__ import annotations

from odradek.ids import ZERO_UUID
from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, TopicName, boolean, int16, int32, string, uuid


class MetadataRequestTopic(Struct):
    topic_id: uuid = field(versions="10+", default=ZERO_UUID)
    name: TopicName | None = field(nullable="10+")


class MetadataRequest(Message, api_key=3, versions="0-13", flexible="9+"):
    topics: list[MetadataRequestTopic] | None = field(nullable="1+")
    allow_auto_topic_creation: boolean = field(versions="4+", default=True)
    include_cluster_authorized_operations: boolean = field(versions="8-10", default=False)
    include_topic_authorized_operations: boolean = field(versions="8+", default=False)


class MetadataResponseBroker(Struct):
    node_id: BrokerId
    host: string
    port: int32
    rack: string | None = field(versions="1+", nullable="1+", default=None)


class MetadataResponsePartition(Struct):
    error_code: int16 = 0
    partition_index: int32
    leader_id: BrokerId
    leader_epoch: int32 = field(versions="7+", default=-1)
    replica_nodes: list[BrokerId]
    isr_nodes: list[BrokerId]
    offline_replicas: list[BrokerId] = field(versions="5+", default_factory=list)


class MetadataResponseTopic(Struct):
    error_code: int16 = 0
    name: TopicName | None = field(nullable="12+")
    topic_id: uuid = field(versions="10+", default=ZERO_UUID)
    is_internal: boolean = field(versions="1+", default=False)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: int32 = field(versions="8+", default=-2147483648)


class MetadataResponse(Message, api_key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: int32 = field(versions="3+", default=0)
    brokers: list[MetadataResponseBroker] = field(default_factory=list)
    cluster_id: string | None = field(versions="2+", nullable="2+", default=None)
    controller_id: BrokerId = field(versions="1+", default=-1)
    topics: list[MetadataResponseTopic] = field(default_factory=list)
    cluster_authorized_operations: int32 = field(versions="8-10", default=-2147483648)
    error_code: int16 = field(versions="13+", default=0)
