"""BrokerHeartbeat: a broker is alive, and learns whether it is fenced."""

from __future__ import annotations

from odradek.protocol.codec import Message, field
from odradek.protocol.primitives import BrokerId, boolean, int16, int32, int64, uuid


class BrokerHeartbeatRequest(Message, api_key=63, versions="0-2", flexible="0+"):
    broker_id: BrokerId
    broker_epoch: int64 = -1
    current_metadata_offset: int64
    want_fence: boolean
    want_shut_down: boolean
    offline_log_dirs: list[uuid] = field(versions="1+", tag=0, default_factory=list)
    cordoned_log_dirs: list[uuid] | None = field(versions="2+", nullable="2+", tag=1, default=None)


class BrokerHeartbeatResponse(Message, api_key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    is_caught_up: boolean = False
    is_fenced: boolean = True
    should_shut_down: boolean = False
