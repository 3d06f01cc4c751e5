"""LeaveGroup, versions 0 to 5: one member leaves a classic group, or from 3 on several, also by their instance ids."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves

_SEVERAL_SINCE = 3


@serves(ApiKey.LEAVE_GROUP, on=Role.BROKER)
async def handle(ctx: Context, request: LeaveGroupRequest) -> LeaveGroupResponse:
    alone = ctx.api_version < _SEVERAL_SINCE
    if alone:
        request = LeaveGroupRequest(group_id=request.group_id, members=[MemberIdentity(member_id=request.member_id)])
    try:
        require(ctx.caller, Operation.READ, ResourceType.GROUP, request.group_id)
        response: LeaveGroupResponse = await ctx.rooms.groups.ask(
            request.group_id, lambda shard, ticket, now: shard.leave(ticket, request, now)
        )
    except KafkaError as refused:
        response = _refused(request, refused.code)
    if alone and response.members:
        return LeaveGroupResponse(error_code=response.members[0].error_code)
    return response


def _refused(request: LeaveGroupRequest, code: ErrorCode) -> LeaveGroupResponse:
    """A group that is not known has no such members; any other error is about the request as a whole."""
    if code != ErrorCode.UNKNOWN_MEMBER_ID:
        return LeaveGroupResponse(error_code=code)
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code)
            for each in request.members
        ]
    )
