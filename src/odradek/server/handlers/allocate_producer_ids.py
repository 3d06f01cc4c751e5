"""AllocateProducerIds, version 0: a block of producer ids for a broker, given to nobody else ever."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.ALLOCATE_PRODUCER_IDS, on=Role.CONTROLLER)
async def handle(ctx: Context, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
    require(ctx.caller, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    return await ctx.rooms.controller.allocate_producer_ids(request)
