"""UpdateRaftVoter, version 0: a voter that has moved, or knows other kraft.versions, says so to the leader."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.update_raft_voter import (
    CurrentLeader,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.UPDATE_RAFT_VOTER, on=Role.CONTROLLER)
async def handle(ctx: Context, request: UpdateRaftVoterRequest) -> UpdateRaftVoterResponse:
    require(ctx.caller, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    quorum = ctx.rooms.quorum
    error = ErrorCode.NONE
    try:
        quorum.voter_changes.update(request)
    except KafkaError as refused:
        error = refused.code
    standing = quorum.raft.standing
    host, port = standing.address or ("", 0)
    leader = CurrentLeader(leader_id=standing.leader_id, leader_epoch=standing.epoch, host=host, port=port)
    return UpdateRaftVoterResponse(error_code=error, current_leader=leader)
