"""ShareFetch: records of share partitions, acquired for a time."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, GroupId, boolean, int8, int16, int32, int64, records, string, uuid


class AcknowledgementBatch(Struct):
    first_offset: int64
    last_offset: int64
    acknowledge_types: list[int8]


class FetchPartition(Struct):
    partition_index: int32
    acknowledgement_batches: list[AcknowledgementBatch]


class FetchTopic(Struct):
    topic_id: uuid
    partitions: list[FetchPartition]


class ForgottenTopic(Struct):
    topic_id: uuid
    partitions: list[int32]


class ShareFetchRequest(Message, api_key=78, versions="1-2", flexible="0+"):
    group_id: GroupId | None = field(nullable="0+", default=None)
    member_id: string | None = field(nullable="0+")
    share_session_epoch: int32
    max_wait_ms: int32
    min_bytes: int32
    max_bytes: int32 = 0x7FFFFFFF
    max_records: int32
    batch_size: int32
    share_acquire_mode: int8 = field(versions="2+", default=0)
    is_renew_ack: boolean = field(versions="2+", default=False)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]


class LeaderIdAndEpoch(Struct):
    leader_id: int32
    leader_epoch: int32


class AcquiredRecords(Struct):
    first_offset: int64
    last_offset: int64
    delivery_count: int16


class PartitionData(Struct):
    partition_index: int32
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    acknowledge_error_code: int16
    acknowledge_error_message: string | None = field(nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch
    records: records
    acquired_records: list[AcquiredRecords]


class ShareFetchableTopicResponse(Struct):
    topic_id: uuid
    partitions: list[PartitionData]


class NodeEndpoint(Struct):
    node_id: BrokerId
    host: string
    port: int32
    rack: string | None = field(nullable="0+", default=None)


class ShareFetchResponse(Message, api_key=78, versions="1-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int32 = 0
    responses: list[ShareFetchableTopicResponse] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)
