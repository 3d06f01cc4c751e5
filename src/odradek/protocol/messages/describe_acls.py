"""DescribeAcls: the access rules that match a filter."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import int8, int16, int32, string


class DescribeAclsRequest(Message, api_key=29, versions="1-3", flexible="2+"):
    resource_type_filter: int8
    resource_name_filter: string | None = field(nullable="0+")
    pattern_type_filter: int8 = 3
    principal_filter: string | None = field(nullable="0+")
    host_filter: string | None = field(nullable="0+")
    operation: int8
    permission_type: int8


class AclDescription(Struct):
    principal: string
    host: string
    operation: int8
    permission_type: int8


class DescribeAclsResource(Struct):
    resource_type: int8
    resource_name: string
    pattern_type: int8 = 3
    acls: list[AclDescription]


class DescribeAclsResponse(Message, api_key=29, versions="1-3", flexible="2+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    resources: list[DescribeAclsResource] = field(default_factory=list)
