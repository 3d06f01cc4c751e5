"""CreateDelegationToken: a new delegation token."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import bytes_, int16, int32, int64, string


class CreatableRenewers(Struct):
    principal_type: string
    principal_name: string


class CreateDelegationTokenRequest(Message, api_key=38, versions="1-3", flexible="2+"):
    owner_principal_type: string | None = field(versions="3+", nullable="3+", default="")
    owner_principal_name: string | None = field(versions="3+", nullable="3+", default="")
    renewers: list[CreatableRenewers]
    max_lifetime_ms: int64


class CreateDelegationTokenResponse(Message, api_key=38, versions="1-3", flexible="2+"):
    error_code: int16 = 0
    principal_type: string = ""
    principal_name: string = ""
    token_requester_principal_type: string = field(versions="3+", default="")
    token_requester_principal_name: string = field(versions="3+", default="")
    issue_timestamp_ms: int64 = 0
    expiry_timestamp_ms: int64 = 0
    max_timestamp_ms: int64 = 0
    token_id: string = ""
    hmac: bytes_ = b""
    throttle_time_ms: int32 = 0
