"""CreateTopics: new topics, by partition count or by hand-made assignment."""

from __future__ import annotations

from odradek.ids import ZERO_UUID
from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, TopicName, boolean, int8, int16, int32, string, uuid


class CreatableReplicaAssignment(Struct):
    partition_index: int32
    broker_ids: list[BrokerId]


class CreatableTopicConfig(Struct):
    name: string
    value: string | None = field(nullable="0+")


class CreatableTopic(Struct):
    name: TopicName
    num_partitions: int32
    replication_factor: int16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


class CreateTopicsRequest(Message, api_key=19, versions="2-7", flexible="5+"):
    topics: list[CreatableTopic]
    timeout_ms: int32 = 60000
    validate_only: boolean = False


class CreatableTopicConfigs(Struct):
    name: string
    value: string | None = field(nullable="5+")
    read_only: boolean
    config_source: int8 = -1
    is_sensitive: boolean


class CreatableTopicResult(Struct):
    name: TopicName
    topic_id: uuid = field(versions="7+", default=ZERO_UUID)
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    topic_config_error_code: int16 = field(versions="5+", tag=0, default=0)
    num_partitions: int32 = field(versions="5+", default=-1)
    replication_factor: int16 = field(versions="5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = field(versions="5+", nullable="5+", default_factory=list)


class CreateTopicsResponse(Message, api_key=19, versions="2-7", flexible="5+"):
    throttle_time_ms: int32 = 0
    topics: list[CreatableTopicResult] = field(default_factory=list)
