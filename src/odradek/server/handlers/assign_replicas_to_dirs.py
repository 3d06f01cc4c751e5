"""AssignReplicasToDirs, version 0: a broker tells which log directory holds which of its replicas (KIP-858)."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.ASSIGN_REPLICAS_TO_DIRS, on=Role.CONTROLLER)
async def handle(ctx: Context, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
    require(ctx.caller, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    return await ctx.rooms.controller.assign_replicas_to_dirs(request)
