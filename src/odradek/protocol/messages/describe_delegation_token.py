"""DescribeDelegationToken: the delegation tokens of some owners."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import bytes_, int16, int32, int64, string


class DescribeDelegationTokenOwner(Struct):
    principal_type: string
    principal_name: string


class DescribeDelegationTokenRequest(Message, api_key=41, versions="1-3", flexible="2+"):
    owners: list[DescribeDelegationTokenOwner] | None = field(nullable="0+")


class DescribedDelegationTokenRenewer(Struct):
    principal_type: string
    principal_name: string


class DescribedDelegationToken(Struct):
    principal_type: string
    principal_name: string
    token_requester_principal_type: string = field(versions="3+", default="")
    token_requester_principal_name: string = field(versions="3+", default="")
    issue_timestamp: int64
    expiry_timestamp: int64
    max_timestamp: int64
    token_id: string
    hmac: bytes_
    renewers: list[DescribedDelegationTokenRenewer]


class DescribeDelegationTokenResponse(Message, api_key=41, versions="1-3", flexible="2+"):
    error_code: int16 = 0
    tokens: list[DescribedDelegationToken] = field(default_factory=list)
    throttle_time_ms: int32 = 0
