"""RemoveRaftVoter, version 0: a controller loses its vote (KIP-853), also the leader."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.REMOVE_RAFT_VOTER, on=Role.BROKER | Role.CONTROLLER, forwarded=True)
async def handle(ctx: Context, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    require(ctx.caller, Operation.ALTER, ResourceType.CLUSTER)
    try:
        await ctx.rooms.quorum.voter_changes.remove(request)
    except KafkaError as refused:
        return RemoveRaftVoterResponse(error_code=refused.code, error_message=refused.message or None)
    return RemoveRaftVoterResponse()
