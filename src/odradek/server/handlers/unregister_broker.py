"""UnregisterBroker, version 0: a broker that is gone for good is forgotten."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.UNREGISTER_BROKER, on=Role.BROKER | Role.CONTROLLER, forwarded=True)
async def handle(ctx: Context, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    require(ctx.caller, Operation.ALTER, ResourceType.CLUSTER)
    return await ctx.rooms.controller.unregister_broker(request)
