"""Keys and values of `__consumer_offsets` for Streams groups."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import int8, int16, int32, int64, string, uint16


class StreamsGroupMetadataKey(Message, api_key=17, versions="0"):
    group_id: string


class LastAssignmentConfig(Struct):
    key: string
    value: string


class StreamsGroupMetadataValue(Message, api_key=17, versions="0", flexible="0+"):
    epoch: int32
    metadata_hash: int64
    validated_topology_epoch: int32 = field(tag=0, default=-1)
    last_assignment_configs: list[LastAssignmentConfig] | None = field(nullable="0+", tag=1, default_factory=list)


class StreamsGroupMemberMetadataKey(Message, api_key=19, versions="0"):
    group_id: string
    member_id: string


class Endpoint(Struct):
    host: string
    port: uint16


class KeyValue(Struct):
    key: string
    value: string


class StreamsGroupMemberMetadataValue(Message, api_key=19, versions="0", flexible="0+"):
    instance_id: string | None = field(nullable="0+")
    rack_id: string | None = field(nullable="0+")
    client_id: string
    client_host: string
    rebalance_timeout_ms: int32 = -1
    topology_epoch: int32
    process_id: string
    user_endpoint: Endpoint | None = field(nullable="0+", default=None)
    client_tags: list[KeyValue]


class StreamsGroupTargetAssignmentMetadataKey(Message, api_key=20, versions="0"):
    group_id: string


class StreamsGroupTargetAssignmentMetadataValue(Message, api_key=20, versions="0", flexible="0+"):
    assignment_epoch: int32
    assignment_timestamp: int64 = field(tag=0, default=0)


class StreamsGroupTargetAssignmentMemberKey(Message, api_key=21, versions="0"):
    group_id: string
    member_id: string


class TargetTaskIds(Struct):
    subtopology_id: string
    partitions: list[int32]


class StreamsGroupTargetAssignmentMemberValue(Message, api_key=21, versions="0", flexible="0+"):
    active_tasks: list[TargetTaskIds]
    standby_tasks: list[TargetTaskIds]
    warmup_tasks: list[TargetTaskIds]


class StreamsGroupCurrentMemberAssignmentKey(Message, api_key=22, versions="0"):
    group_id: string
    member_id: string


class CurrentTaskIds(Struct):
    subtopology_id: string
    partitions: list[int32]
    assignment_epochs: list[int32] | None = field(nullable="0+", tag=0, default_factory=list)


class StreamsGroupCurrentMemberAssignmentValue(Message, api_key=22, versions="0", flexible="0+"):
    member_epoch: int32
    previous_member_epoch: int32
    state: int8
    active_tasks: list[CurrentTaskIds]
    standby_tasks: list[CurrentTaskIds]
    warmup_tasks: list[CurrentTaskIds]
    active_tasks_pending_revocation: list[CurrentTaskIds]
    standby_tasks_pending_revocation: list[CurrentTaskIds]
    warmup_tasks_pending_revocation: list[CurrentTaskIds]


class StreamsGroupTopologyKey(Message, api_key=23, versions="0"):
    group_id: string


class TopicConfig(Struct):
    key: string
    value: string


class TopicInfo(Struct):
    name: string
    partitions: int32
    replication_factor: int16
    topic_configs: list[TopicConfig]


class CopartitionGroup(Struct):
    source_topics: list[int16]
    source_topic_regex: list[int16]
    repartition_source_topics: list[int16]


class Subtopology(Struct):
    subtopology_id: string
    source_topics: list[string]
    source_topic_regex: list[string]
    state_changelog_topics: list[TopicInfo]
    repartition_sink_topics: list[string]
    repartition_source_topics: list[TopicInfo]
    copartition_groups: list[CopartitionGroup]


class StreamsGroupTopologyValue(Message, api_key=23, versions="0", flexible="0+"):
    epoch: int32
    subtopologies: list[Subtopology]
