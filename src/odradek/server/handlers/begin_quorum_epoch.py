"""BeginQuorumEpoch, versions 0 and 1: the leader of a new epoch makes itself known."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.BEGIN_QUORUM_EPOCH, on=Role.CONTROLLER)
async def handle(ctx: Context, request: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse:
    require(ctx.caller, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    quorum = ctx.rooms.quorum
    return await quorum.step(lambda now_ms: quorum.raft.epoch_begun(request, now_ms))
