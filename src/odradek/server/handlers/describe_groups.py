"""DescribeGroups, versions 0 to 6: state and members of classic groups.

A group that is not there is called Dead and no error; only from version 6 on is it GROUP_ID_NOT_FOUND as well.
"""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorized_operations import GROUP_OPERATIONS
from odradek.server.access.authorizer import allowed_operations, require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves

_NOT_FOUND_SINCE = 6
_DEAD = "Dead"


@serves(ApiKey.DESCRIBE_GROUPS, on=Role.BROKER)
async def handle(ctx: Context, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    groups = [await _describe(ctx, group_id) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = allowed_operations(
                    ctx.caller, ResourceType.GROUP, group.group_id, GROUP_OPERATIONS
                )
    return DescribeGroupsResponse(groups=groups)


async def _describe(ctx: Context, group_id: str) -> DescribedGroup:
    try:
        require(ctx.caller, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        group: DescribedGroup = await ctx.rooms.groups.ask(
            group_id, lambda shard, ticket, now: shard.describe(ticket, group_id)
        )
    except KafkaError as refused:
        return _refused(ctx, group_id, refused)
    return group


def _refused(ctx: Context, group_id: str, refused: KafkaError) -> DescribedGroup:
    missing = refused.code == ErrorCode.GROUP_ID_NOT_FOUND
    told = not missing or ctx.api_version >= _NOT_FOUND_SINCE
    return DescribedGroup(
        error_code=refused.code if told else ErrorCode.NONE,
        error_message=refused.message if told else None,
        group_id=group_id,
        group_state=_DEAD if missing else "",
        protocol_type="",
        protocol_data="",
        members=[],
    )
