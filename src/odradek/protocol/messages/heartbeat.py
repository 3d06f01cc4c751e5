"""Heartbeat: a member of a classic group is alive."""

from __future__ import annotations

from odradek.protocol.codec import Message, field
from odradek.protocol.primitives import GroupId, int16, int32, string


class HeartbeatRequest(Message, api_key=12, versions="0-4", flexible="4+"):
    group_id: GroupId
    generation_id: int32
    member_id: string
    group_instance_id: string | None = field(versions="3+", nullable="3+", default=None)


class HeartbeatResponse(Message, api_key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int32 = field(versions="1+", default=0)
    error_code: int16 = 0
