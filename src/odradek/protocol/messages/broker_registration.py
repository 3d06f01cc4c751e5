"""BrokerRegistration: a broker enters the cluster."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, boolean, int16, int32, int64, string, uint16, uuid


class Listener(Struct):
    name: string
    host: string
    port: uint16
    security_protocol: int16


class Feature(Struct):
    name: string
    min_supported_version: int16
    max_supported_version: int16


class BrokerRegistrationRequest(Message, api_key=62, versions="0-4", flexible="0+"):
    broker_id: BrokerId
    cluster_id: string
    incarnation_id: uuid
    listeners: list[Listener]
    features: list[Feature]
    rack: string | None = field(nullable="0+")
    is_migrating_zk_broker: boolean = field(versions="1+", default=False)
    log_dirs: list[uuid] = field(versions="2+", default_factory=list)
    previous_broker_epoch: int64 = field(versions="3+", default=-1)


class BrokerRegistrationResponse(Message, api_key=62, versions="0-4", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    broker_epoch: int64 = -1
