"""AlterUserScramCredentials: SCRAM credentials to set or delete."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import bytes_, int8, int16, int32, string


class ScramCredentialDeletion(Struct):
    name: string
    mechanism: int8


class ScramCredentialUpsertion(Struct):
    name: string
    mechanism: int8
    iterations: int32
    salt: bytes_
    salted_password: bytes_


class AlterUserScramCredentialsRequest(Message, api_key=51, versions="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


class AlterUserScramCredentialsResult(Struct):
    user: string
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)


class AlterUserScramCredentialsResponse(Message, api_key=51, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    results: list[AlterUserScramCredentialsResult] = field(default_factory=list)
