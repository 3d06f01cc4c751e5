"""BrokerHeartbeat, versions 0 to 2: a broker is alive, says what it wants, and learns whether it is fenced.

The connection it comes on is watched: when the broker's side closes it and its ports refuse, the broker is dead, and
nobody waits for its session to end.
"""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.BROKER_HEARTBEAT, on=Role.CONTROLLER)
async def handle(ctx: Context, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
    require(ctx.caller, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    controller = ctx.rooms.controller
    connection = (ctx.caller.listener, ctx.caller.connection_id)
    if controller.heartbeats_on(request, connection):
        ctx.listener.when_lost(
            ctx.caller.connection_id,
            lambda closed_by_peer: controller.connection_lost(request, connection, closed_by_peer=closed_by_peer),
        )
    return await controller.broker_heartbeat(request)
