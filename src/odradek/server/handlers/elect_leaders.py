"""ElectLeaders, versions 0 to 2: elections on demand, to the preferred replica or, where none in sync is left, to any.

The answer leaves once the new leaders are on record; Kafka's waits no longer either.
"""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.ELECT_LEADERS, on=Role.BROKER | Role.CONTROLLER, forwarded=True)
async def handle(ctx: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    require(ctx.caller, Operation.ALTER, ResourceType.CLUSTER)
    return await ctx.rooms.controller.elect_leaders(request)
