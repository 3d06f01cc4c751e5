"""SyncGroup: the leader's assignment goes in, each member's own comes out."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import GroupId, bytes_, int16, int32, string


class SyncGroupRequestAssignment(Struct):
    member_id: string
    assignment: bytes_


class SyncGroupRequest(Message, api_key=14, versions="0-5", flexible="4+"):
    group_id: GroupId
    generation_id: int32
    member_id: string
    group_instance_id: string | None = field(versions="3+", nullable="3+", default=None)
    protocol_type: string | None = field(versions="5+", nullable="5+", default=None)
    protocol_name: string | None = field(versions="5+", nullable="5+", default=None)
    assignments: list[SyncGroupRequestAssignment]


class SyncGroupResponse(Message, api_key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int32 = field(versions="1+", default=0)
    error_code: int16 = 0
    protocol_type: string | None = field(versions="5+", nullable="5+", default=None)
    protocol_name: string | None = field(versions="5+", nullable="5+", default=None)
    assignment: bytes_ = b""
