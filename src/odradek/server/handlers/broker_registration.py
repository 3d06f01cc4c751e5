"""BrokerRegistration, versions 0 to 4: a broker enters the cluster, fenced, and learns its epoch.

Version 3 tells the epoch of the last clean stop: a broker that stopped in order keeps what it was eligible for.
"""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.BROKER_REGISTRATION, on=Role.CONTROLLER)
async def handle(ctx: Context, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
    require(ctx.caller, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    return await ctx.rooms.controller.register_broker(request, ctx.api_version)
