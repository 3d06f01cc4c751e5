"""Heartbeat, versions 0 to 4: a member of a classic group is alive, and hears whether it has to join again."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.authorizer import require
from odradek.server.context import Context
from odradek.server.routes import Role, serves


@serves(ApiKey.HEARTBEAT, on=Role.BROKER)
async def handle(ctx: Context, request: HeartbeatRequest) -> HeartbeatResponse:
    try:
        require(ctx, Operation.READ, ResourceType.GROUP, request.group_id)
        response: HeartbeatResponse = await ctx.node.coordinators.ask(
            request.group_id, lambda shard, ticket, now: shard.heartbeat(ticket, request, now)
        )
    except KafkaError as refused:
        # While the group is being loaded its members are given the benefit of the doubt, as Kafka does.
        loading = refused.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=ErrorCode.NONE if loading else refused.code)
    return response
