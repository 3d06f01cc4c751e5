"""PushTelemetry: client metrics for a broker."""

from __future__ import annotations

from odradek.protocol.codec import Message
from odradek.protocol.primitives import boolean, bytes_, int8, int16, int32, uuid


class PushTelemetryRequest(Message, api_key=72, versions="0", flexible="0+"):
    client_instance_id: uuid
    subscription_id: int32
    terminating: boolean
    compression_type: int8
    metrics: bytes_


class PushTelemetryResponse(Message, api_key=72, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
