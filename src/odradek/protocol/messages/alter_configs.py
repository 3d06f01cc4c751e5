"""AlterConfigs: a resource's configuration, replaced as a whole."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import boolean, int8, int16, int32, string


class AlterableConfig(Struct):
    name: string
    value: string | None = field(nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int8
    resource_name: string
    configs: list[AlterableConfig]


class AlterConfigsRequest(Message, api_key=33, versions="0-2", flexible="2+"):
    resources: list[AlterConfigsResource]
    validate_only: boolean


class AlterConfigsResourceResponse(Struct):
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    resource_type: int8
    resource_name: string


class AlterConfigsResponse(Message, api_key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)
