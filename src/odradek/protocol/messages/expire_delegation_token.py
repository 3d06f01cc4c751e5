"""ExpireDelegationToken: a delegation token ends sooner."""

from __future__ import annotations

from odradek.protocol.codec import Message
from odradek.protocol.primitives import bytes_, int16, int32, int64


class ExpireDelegationTokenRequest(Message, api_key=40, versions="1-2", flexible="2+"):
    hmac: bytes_
    expiry_time_period_ms: int64


class ExpireDelegationTokenResponse(Message, api_key=40, versions="1-2", flexible="2+"):
    error_code: int16 = 0
    expiry_timestamp_ms: int64 = 0
    throttle_time_ms: int32 = 0
