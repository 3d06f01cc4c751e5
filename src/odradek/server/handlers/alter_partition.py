"""AlterPartition, versions 2 and 3: the leader of partitions asks for other ISRs.

Version 3 names the epoch of every member, so that a broker that was restarted since is not taken for the one that had
caught up (KIP-903).
"""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.ALTER_PARTITION, on=Role.CONTROLLER)
async def handle(ctx: Context, request: AlterPartitionRequest) -> AlterPartitionResponse:
    require(ctx.caller, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    return await ctx.rooms.controller.alter_partition(request, ctx.api_version)
