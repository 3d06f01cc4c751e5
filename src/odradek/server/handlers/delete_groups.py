"""DeleteGroups, versions 0 to 2: groups without members, with all their offsets; each on its own."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.DELETE_GROUPS, on=Role.BROKER)
async def handle(ctx: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    names = dict.fromkeys(request.groups_names)
    return DeleteGroupsResponse(results=[await _delete(ctx, group_id) for group_id in names])


async def _delete(ctx: Context, group_id: str) -> DeletableGroupResult:
    try:
        require(ctx.caller, Operation.DELETE, ResourceType.GROUP, group_id)
        result: DeletableGroupResult = await ctx.rooms.groups.delete_group(group_id)
    except KafkaError as refused:
        return DeletableGroupResult(group_id=group_id, error_code=refused.code)
    return result
