"""DescribeUserScramCredentials: which SCRAM mechanisms users have credentials for."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import int8, int16, int32, string


class UserName(Struct):
    name: string


class DescribeUserScramCredentialsRequest(Message, api_key=50, versions="0", flexible="0+"):
    users: list[UserName] | None = field(nullable="0+")


class CredentialInfo(Struct):
    mechanism: int8
    iterations: int32


class DescribeUserScramCredentialsResult(Struct):
    user: string
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    credential_infos: list[CredentialInfo]


class DescribeUserScramCredentialsResponse(Message, api_key=50, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    results: list[DescribeUserScramCredentialsResult] = field(default_factory=list)
