"""SyncGroup, versions 0 to 5: the leader hands in the assignment; everyone gets their part once it is in the log."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.authorizer import require
from odradek.server.context import Context
from odradek.server.routes import Role, serves

_PROTOCOL_REQUIRED_SINCE = 5


@serves(ApiKey.SYNC_GROUP, on=Role.BROKER)
async def handle(ctx: Context, request: SyncGroupRequest) -> SyncGroupResponse:
    if ctx.api_version >= _PROTOCOL_REQUIRED_SINCE and None in (request.protocol_type, request.protocol_name):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        require(ctx, Operation.READ, ResourceType.GROUP, request.group_id)
        response: SyncGroupResponse = await ctx.node.coordinators.ask(
            request.group_id, lambda shard, ticket, now: shard.sync(ticket, request, now)
        )
    except KafkaError as refused:
        return SyncGroupResponse(error_code=refused.code)
    return response
