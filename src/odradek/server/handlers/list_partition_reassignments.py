"""ListPartitionReassignments, version 0: the partitions that are on their way to other brokers."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.LIST_PARTITION_REASSIGNMENTS, on=Role.BROKER | Role.CONTROLLER, forwarded=True)
async def handle(ctx: Context, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    require(ctx.caller, Operation.DESCRIBE, ResourceType.CLUSTER)
    return await ctx.rooms.controller.list_partition_reassignments(request)
