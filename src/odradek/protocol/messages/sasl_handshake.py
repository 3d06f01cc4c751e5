"""SaslHandshake: the client chooses a SASL mechanism."""

from __future__ import annotations

from odradek.protocol.codec import Message, field
from odradek.protocol.primitives import int16, string


class SaslHandshakeRequest(Message, api_key=17, versions="0-1"):
    mechanism: string


class SaslHandshakeResponse(Message, api_key=17, versions="0-1"):
    error_code: int16 = 0
    mechanisms: list[string] = field(default_factory=list)
