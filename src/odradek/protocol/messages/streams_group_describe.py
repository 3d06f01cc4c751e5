"""StreamsGroupDescribe: state, topology and members of Streams groups."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import GroupId, TopicName, boolean, int16, int32, int64, string, uint16


class StreamsGroupDescribeRequest(Message, api_key=89, versions="0", flexible="0+"):
    group_ids: list[GroupId]
    include_authorized_operations: boolean


class KeyValue(Struct):
    key: string
    value: string


class TopicInfo(Struct):
    name: TopicName
    partitions: int32
    replication_factor: int16
    topic_configs: list[KeyValue]


class Subtopology(Struct):
    subtopology_id: string
    source_topics: list[TopicName]
    repartition_sink_topics: list[TopicName]
    state_changelog_topics: list[TopicInfo]
    repartition_source_topics: list[TopicInfo]


class Topology(Struct):
    epoch: int32
    subtopologies: list[Subtopology] | None = field(nullable="0+", default=None)


class Endpoint(Struct):
    host: string
    port: uint16


class TaskOffset(Struct):
    subtopology_id: string
    partition: int32
    offset: int64


class TaskIds(Struct):
    subtopology_id: string
    partitions: list[int32]


class Assignment(Struct):
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


class Member(Struct):
    member_id: string
    member_epoch: int32
    instance_id: string | None = field(nullable="0+", default=None)
    rack_id: string | None = field(nullable="0+", default=None)
    client_id: string
    client_host: string
    topology_epoch: int32
    process_id: string
    user_endpoint: Endpoint | None = field(nullable="0+", default=None)
    client_tags: list[KeyValue]
    task_offsets: list[TaskOffset]
    task_end_offsets: list[TaskOffset]
    assignment: Assignment
    target_assignment: Assignment
    is_classic: boolean


class DescribedGroup(Struct):
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    group_id: GroupId
    group_state: string
    group_epoch: int32
    assignment_epoch: int32
    topology: Topology | None = field(nullable="0+", default=None)
    members: list[Member]
    authorized_operations: int32 = -2147483648


class StreamsGroupDescribeResponse(Message, api_key=89, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup] = field(default_factory=list)
