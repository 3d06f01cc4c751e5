"""DeleteAcls: the access rules that match filters go."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import int8, int16, int32, string


class DeleteAclsFilter(Struct):
    resource_type_filter: int8
    resource_name_filter: string | None = field(nullable="0+")
    pattern_type_filter: int8 = 3
    principal_filter: string | None = field(nullable="0+")
    host_filter: string | None = field(nullable="0+")
    operation: int8
    permission_type: int8


class DeleteAclsRequest(Message, api_key=31, versions="1-3", flexible="2+"):
    filters: list[DeleteAclsFilter]


class DeleteAclsMatchingAcl(Struct):
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    resource_type: int8
    resource_name: string
    pattern_type: int8 = 3
    principal: string
    host: string
    operation: int8
    permission_type: int8


class DeleteAclsFilterResult(Struct):
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    matching_acls: list[DeleteAclsMatchingAcl]


class DeleteAclsResponse(Message, api_key=31, versions="1-3", flexible="2+"):
    throttle_time_ms: int32 = 0
    filter_results: list[DeleteAclsFilterResult] = field(default_factory=list)
