"""RemoveRaftVoter: a voter leaves the quorum."""

from __future__ import annotations

from odradek.protocol.codec import Message, field
from odradek.protocol.primitives import int16, int32, string, uuid


class RemoveRaftVoterRequest(Message, api_key=81, versions="0", flexible="0+"):
    cluster_id: string | None = field(nullable="0+")
    voter_id: int32
    voter_directory_id: uuid


class RemoveRaftVoterResponse(Message, api_key=81, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
