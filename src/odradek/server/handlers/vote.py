"""Vote, versions 0 to 2: a candidate, or one that would become it (pre-vote), asks this voter for its vote."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.messages.vote import VoteRequest, VoteResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.VOTE, on=Role.CONTROLLER)
async def handle(ctx: Context, request: VoteRequest) -> VoteResponse:
    require(ctx.caller, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    quorum = ctx.rooms.quorum
    return await quorum.step(lambda now_ms: quorum.raft.vote_asked(request, now_ms))
