"""ApiVersions: which APIs and features a node serves, in which versions."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import boolean, int16, int32, int64, string


class ApiVersionsRequest(Message, api_key=18, versions="0-4", flexible="3+"):
    client_software_name: string = field(versions="3+", default="")
    client_software_version: string = field(versions="3+", default="")


class ApiVersion(Struct):
    api_key: int16
    min_version: int16
    max_version: int16


class SupportedFeatureKey(Struct):
    name: string
    min_version: int16
    max_version: int16


class FinalizedFeatureKey(Struct):
    name: string
    max_version_level: int16
    min_version_level: int16


class ApiVersionsResponse(Message, api_key=18, versions="0-4", flexible="3+"):
    error_code: int16 = 0
    api_keys: list[ApiVersion] = field(default_factory=list)
    throttle_time_ms: int32 = field(versions="1+", default=0)
    supported_features: list[SupportedFeatureKey] = field(versions="3+", tag=0, default_factory=list)
    finalized_features_epoch: int64 = field(versions="3+", tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field(versions="3+", tag=2, default_factory=list)
    zk_migration_ready: boolean = field(versions="3+", tag=3, default=False)
