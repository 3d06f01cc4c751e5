"""ListGroups: the groups a broker coordinates."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import GroupId, int16, int32, string


class ListGroupsRequest(Message, api_key=16, versions="0-5", flexible="3+"):
    states_filter: list[string] = field(versions="4+", default_factory=list)
    types_filter: list[string] = field(versions="5+", default_factory=list)


class ListedGroup(Struct):
    group_id: GroupId
    protocol_type: string
    group_state: string = field(versions="4+", default="")
    group_type: string = field(versions="5+", default="")


class ListGroupsResponse(Message, api_key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int32 = field(versions="1+", default=0)
    error_code: int16 = 0
    groups: list[ListedGroup] = field(default_factory=list)
