"""Envelope: a client's request, forwarded by a broker to the controller."""

from __future__ import annotations

from odradek.protocol.codec import Message, field
from odradek.protocol.primitives import bytes_, int16


class EnvelopeRequest(Message, api_key=58, versions="0", flexible="0+"):
    request_data: bytes_
    request_principal: bytes_ | None = field(nullable="0+")
    client_host_address: bytes_


class EnvelopeResponse(Message, api_key=58, versions="0", flexible="0+"):
    response_data: bytes_ | None = field(nullable="0+", default=None)
    error_code: int16 = 0
