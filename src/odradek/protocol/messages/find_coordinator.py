"""FindCoordinator: which broker coordinates a group, a transactional id or a share partition."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, int8, int16, int32, string


class FindCoordinatorRequest(Message, api_key=10, versions="0-6", flexible="3+"):
    key: string = field(versions="0-3", default="")
    key_type: int8 = field(versions="1+", default=0)
    coordinator_keys: list[string] = field(versions="4+", default_factory=list)


class Coordinator(Struct):
    key: string
    node_id: BrokerId
    host: string
    port: int32
    error_code: int16 = 0
    error_message: string | None = field(nullable="4+", default=None)


class FindCoordinatorResponse(Message, api_key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int32 = field(versions="1+", default=0)
    error_code: int16 = field(versions="0-3", default=0)
    error_message: string | None = field(versions="1-3", nullable="1-3", default="")
    node_id: BrokerId = field(versions="0-3", default=0)
    host: string = field(versions="0-3", default="")
    port: int32 = field(versions="0-3", default=0)
    coordinators: list[Coordinator] = field(versions="4+", default_factory=list)
