"""IncrementalAlterConfigs: single settings of a resource, set, deleted, appended to or subtracted from."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import boolean, int8, int16, int32, string


class AlterableConfig(Struct):
    name: string
    config_operation: int8
    value: string | None = field(nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int8
    resource_name: string
    configs: list[AlterableConfig]


class IncrementalAlterConfigsRequest(Message, api_key=44, versions="0-1", flexible="1+"):
    resources: list[AlterConfigsResource]
    validate_only: boolean


class AlterConfigsResourceResponse(Struct):
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    resource_type: int8
    resource_name: string


class IncrementalAlterConfigsResponse(Message, api_key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)
