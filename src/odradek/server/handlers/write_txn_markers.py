"""WriteTxnMarkers, versions 1 and 2: partitions here are told how transactions have ended.

By the coordinators of those transactions, or by an administrator who aborts one that hangs (KIP-664).
"""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import allowed, require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.WRITE_TXN_MARKERS, on=Role.BROKER)
async def handle(ctx: Context, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    if not allowed(ctx.caller, Operation.ALTER, ResourceType.CLUSTER):
        require(ctx.caller, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    return WriteTxnMarkersResponse(markers=await ctx.rooms.markers.write(request.markers))
