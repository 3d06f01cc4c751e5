"""JoinGroup: a member enters a classic group and waits for the others."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import GroupId, boolean, bytes_, int16, int32, string


class JoinGroupRequestProtocol(Struct):
    name: string
    metadata: bytes_


class JoinGroupRequest(Message, api_key=11, versions="0-9", flexible="6+"):
    group_id: GroupId
    session_timeout_ms: int32
    rebalance_timeout_ms: int32 = field(versions="1+", default=-1)
    member_id: string
    group_instance_id: string | None = field(versions="5+", nullable="5+", default=None)
    protocol_type: string
    protocols: list[JoinGroupRequestProtocol]
    reason: string | None = field(versions="8+", nullable="8+", default=None)


class JoinGroupResponseMember(Struct):
    member_id: string
    group_instance_id: string | None = field(versions="5+", nullable="5+", default=None)
    metadata: bytes_


class JoinGroupResponse(Message, api_key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int32 = field(versions="2+", default=0)
    error_code: int16 = 0
    generation_id: int32 = -1
    protocol_type: string | None = field(versions="7+", nullable="7+", default=None)
    protocol_name: string | None = field(nullable="7+", default="")
    leader: string = ""
    skip_assignment: boolean = field(versions="9+", default=False)
    member_id: string = ""
    members: list[JoinGroupResponseMember] = field(default_factory=list)
