"""UnregisterBroker: a broker is gone for good."""

from __future__ import annotations

from odradek.protocol.codec import Message, field
from odradek.protocol.primitives import BrokerId, int16, int32, string


class UnregisterBrokerRequest(Message, api_key=64, versions="0", flexible="0+"):
    broker_id: BrokerId


class UnregisterBrokerResponse(Message, api_key=64, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
