"""ShareAcknowledge: the fate of acquired records."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, GroupId, boolean, int8, int16, int32, int64, string, uuid


class AcknowledgementBatch(Struct):
    first_offset: int64
    last_offset: int64
    acknowledge_types: list[int8]


class AcknowledgePartition(Struct):
    partition_index: int32
    acknowledgement_batches: list[AcknowledgementBatch]


class AcknowledgeTopic(Struct):
    topic_id: uuid
    partitions: list[AcknowledgePartition]


class ShareAcknowledgeRequest(Message, api_key=79, versions="1-2", flexible="0+"):
    group_id: GroupId | None = field(nullable="0+", default=None)
    member_id: string | None = field(nullable="0+")
    share_session_epoch: int32
    is_renew_ack: boolean = field(versions="2+", default=False)
    topics: list[AcknowledgeTopic]


class LeaderIdAndEpoch(Struct):
    leader_id: int32
    leader_epoch: int32


class PartitionData(Struct):
    partition_index: int32
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: uuid
    partitions: list[PartitionData]


class NodeEndpoint(Struct):
    node_id: BrokerId
    host: string
    port: int32
    rack: string | None = field(nullable="0+", default=None)


class ShareAcknowledgeResponse(Message, api_key=79, versions="1-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int32 = field(versions="2+", default=0)
    responses: list[ShareAcknowledgeTopicResponse] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)
