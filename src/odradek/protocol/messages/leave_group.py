"""LeaveGroup: members leave a classic group."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import GroupId, int16, int32, string


class MemberIdentity(Struct):
    member_id: string
    group_instance_id: string | None = field(nullable="3+", default=None)
    reason: string | None = field(versions="5+", nullable="5+", default=None)


class LeaveGroupRequest(Message, api_key=13, versions="0-5", flexible="4+"):
    group_id: GroupId
    member_id: string = field(versions="0-2", default="")
    members: list[MemberIdentity] = field(versions="3+", default_factory=list)


class MemberResponse(Struct):
    member_id: string
    group_instance_id: string | None = field(nullable="3+")
    error_code: int16 = 0


class LeaveGroupResponse(Message, api_key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int32 = field(versions="1+", default=0)
    error_code: int16 = 0
    members: list[MemberResponse] = field(versions="3+", default_factory=list)
