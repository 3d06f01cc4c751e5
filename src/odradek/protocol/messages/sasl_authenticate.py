"""SaslAuthenticate: one step of a SASL exchange."""

from __future__ import annotations

from odradek.protocol.codec import Message, field
from odradek.protocol.primitives import bytes_, int16, int64, string


class SaslAuthenticateRequest(Message, api_key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes_


class SaslAuthenticateResponse(Message, api_key=36, versions="0-2", flexible="2+"):
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    auth_bytes: bytes_ = b""
    session_lifetime_ms: int64 = field(versions="1+", default=0)
