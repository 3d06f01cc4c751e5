"""AlterPartitionReassignments, versions 0 and 1: partitions move to other brokers, or stop moving."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.ALTER_PARTITION_REASSIGNMENTS, on=Role.BROKER | Role.CONTROLLER, forwarded=True)
async def handle(ctx: Context, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    require(ctx.caller, Operation.ALTER, ResourceType.CLUSTER)
    return await ctx.rooms.controller.alter_partition_reassignments(request)
