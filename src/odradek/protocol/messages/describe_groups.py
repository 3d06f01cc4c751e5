"""DescribeGroups: state and members of classic groups."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import GroupId, boolean, bytes_, int16, int32, string


class DescribeGroupsRequest(Message, api_key=15, versions="0-6", flexible="5+"):
    groups: list[GroupId]
    include_authorized_operations: boolean = field(versions="3+", default=False)


class DescribedGroupMember(Struct):
    member_id: string
    group_instance_id: string | None = field(versions="4+", nullable="4+", default=None)
    client_id: string
    client_host: string
    member_metadata: bytes_
    member_assignment: bytes_


class DescribedGroup(Struct):
    error_code: int16 = 0
    error_message: string | None = field(versions="6+", nullable="6+", default=None)
    group_id: GroupId
    group_state: string
    protocol_type: string
    protocol_data: string
    members: list[DescribedGroupMember]
    authorized_operations: int32 = field(versions="3+", default=-2147483648)


class DescribeGroupsResponse(Message, api_key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int32 = field(versions="1+", default=0)
    groups: list[DescribedGroup] = field(default_factory=list)
