"""RenewDelegationToken: a delegation token lives longer."""

from __future__ import annotations

from odradek.protocol.codec import Message
from odradek.protocol.primitives import bytes_, int16, int32, int64


class RenewDelegationTokenRequest(Message, api_key=39, versions="1-2", flexible="2+"):
    hmac: bytes_
    renew_period_ms: int64


class RenewDelegationTokenResponse(Message, api_key=39, versions="1-2", flexible="2+"):
    error_code: int16 = 0
    expiry_timestamp_ms: int64 = 0
    throttle_time_ms: int32 = 0
