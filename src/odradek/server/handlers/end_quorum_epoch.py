"""EndQuorumEpoch, versions 0 and 1: the leader resigns, and says who should follow it."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.END_QUORUM_EPOCH, on=Role.CONTROLLER)
async def handle(ctx: Context, request: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
    require(ctx.caller, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    quorum = ctx.rooms.quorum
    return await quorum.step(lambda now_ms: quorum.raft.epoch_ended(request, now_ms))
