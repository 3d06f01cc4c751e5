"""AddRaftVoter, versions 0 and 1: a controller that follows the metadata log gets a vote (KIP-853)."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.ADD_RAFT_VOTER, on=Role.BROKER | Role.CONTROLLER, forwarded=True)
async def handle(ctx: Context, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    require(ctx.caller, Operation.ALTER, ResourceType.CLUSTER)
    try:
        await ctx.rooms.quorum.voter_changes.add(request)
    except KafkaError as refused:
        return AddRaftVoterResponse(error_code=refused.code, error_message=refused.message or None)
    return AddRaftVoterResponse()
