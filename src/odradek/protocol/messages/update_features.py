"""UpdateFeatures: levels of the cluster's features."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import boolean, int8, int16, int32, string


class FeatureUpdateKey(Struct):
    feature: string
    max_version_level: int16
    allow_downgrade: boolean = field(versions="0", default=False)
    upgrade_type: int8 = field(versions="1+", default=1)


class UpdateFeaturesRequest(Message, api_key=57, versions="0-2", flexible="0+"):
    timeout_ms: int32 = 60000
    feature_updates: list[FeatureUpdateKey]
    validate_only: boolean = field(versions="1+", default=False)


class UpdatableFeatureResult(Struct):
    feature: string
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)


class UpdateFeaturesResponse(Message, api_key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    results: list[UpdatableFeatureResult] = field(versions="0-1", default_factory=list)
