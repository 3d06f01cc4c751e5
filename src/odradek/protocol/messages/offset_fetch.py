"""OffsetFetch: a group's stored offsets."""

from __future__ import annotations

from odradek.ids import ZERO_UUID
from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import GroupId, TopicName, boolean, int16, int32, int64, string, uuid


class OffsetFetchRequestTopic(Struct):
    name: TopicName
    partition_indexes: list[int32]


class OffsetFetchRequestTopics(Struct):
    name: TopicName = field(versions="8-9", default="")
    topic_id: uuid = field(versions="10+", default=ZERO_UUID)
    partition_indexes: list[int32]


class OffsetFetchRequestGroup(Struct):
    group_id: GroupId
    member_id: string | None = field(versions="9+", nullable="9+", default=None)
    member_epoch: int32 = field(versions="9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = field(nullable="8+")


class OffsetFetchRequest(Message, api_key=9, versions="1-10", flexible="6+"):
    group_id: GroupId = field(versions="0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field(versions="0-7", nullable="2-7", default_factory=list)
    groups: list[OffsetFetchRequestGroup] = field(versions="8+", default_factory=list)
    require_stable: boolean = field(versions="7+", default=False)


class OffsetFetchResponsePartition(Struct):
    partition_index: int32
    committed_offset: int64
    committed_leader_epoch: int32 = field(versions="5-7", default=-1)
    metadata: string | None = field(nullable="0-7")
    error_code: int16 = 0


class OffsetFetchResponseTopic(Struct):
    name: TopicName
    partitions: list[OffsetFetchResponsePartition]


class OffsetFetchResponsePartitions(Struct):
    partition_index: int32
    committed_offset: int64
    committed_leader_epoch: int32 = -1
    metadata: string | None = field(nullable="8+")
    error_code: int16 = 0


class OffsetFetchResponseTopics(Struct):
    name: TopicName = field(versions="8-9", default="")
    topic_id: uuid = field(versions="10+", default=ZERO_UUID)
    partitions: list[OffsetFetchResponsePartitions]


class OffsetFetchResponseGroup(Struct):
    group_id: GroupId
    topics: list[OffsetFetchResponseTopics]
    error_code: int16 = 0


class OffsetFetchResponse(Message, api_key=9, versions="1-10", flexible="6+"):
    throttle_time_ms: int32 = field(versions="3+", default=0)
    topics: list[OffsetFetchResponseTopic] = field(versions="0-7", default_factory=list)
    error_code: int16 = field(versions="2-7", default=0)
    groups: list[OffsetFetchResponseGroup] = field(versions="8+", default_factory=list)
