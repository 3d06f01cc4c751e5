"""DescribeConfigs: the configuration of topics, brokers and groups."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import boolean, int8, int16, int32, string


class DescribeConfigsResource(Struct):
    resource_type: int8
    resource_name: string
    configuration_keys: list[string] | None = field(nullable="0+")


class DescribeConfigsRequest(Message, api_key=32, versions="1-4", flexible="4+"):
    resources: list[DescribeConfigsResource]
    include_synonyms: boolean = False
    include_documentation: boolean = field(versions="3+", default=False)


class DescribeConfigsSynonym(Struct):
    name: string
    value: string | None = field(nullable="0+")
    source: int8


class DescribeConfigsResourceResult(Struct):
    name: string
    value: string | None = field(nullable="0+")
    read_only: boolean
    config_source: int8 = -1
    is_sensitive: boolean
    synonyms: list[DescribeConfigsSynonym]
    config_type: int8 = field(versions="3+", default=0)
    documentation: string | None = field(versions="3+", nullable="0+", default="")


class DescribeConfigsResult(Struct):
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    resource_type: int8
    resource_name: string
    configs: list[DescribeConfigsResourceResult]


class DescribeConfigsResponse(Message, api_key=32, versions="1-4", flexible="4+"):
    throttle_time_ms: int32 = 0
    results: list[DescribeConfigsResult] = field(default_factory=list)
