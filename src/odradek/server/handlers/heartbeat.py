"""Heartbeat, versions 0 to 4: a member of a classic group is alive, and hears whether it has to join again."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.authorizer import require
from odradek.server.context import Context
from odradek.server.handlers.quick_groups import quick_group_request
from odradek.server.routes import QuickHandler, Role, serves
from odradek.server.running_shard import Decide


def _quick(version: int) -> QuickHandler:
    return quick_group_request(
        ApiKey.HEARTBEAT, version, decide=lambda running, request: _decide(request), answer=_answer
    )


@serves(ApiKey.HEARTBEAT, on=Role.BROKER, quick=_quick)
async def handle(ctx: Context, request: HeartbeatRequest) -> HeartbeatResponse:
    try:
        require(ctx, Operation.READ, ResourceType.GROUP, request.group_id)
        outcome = await ctx.node.coordinators.ask(request.group_id, _decide(request))
    except KafkaError as refused:
        outcome = refused
    return _answer(request, outcome, ctx.api_version)


def _decide(request: HeartbeatRequest) -> Decide:
    return lambda shard, ticket, now: shard.heartbeat(ticket, request, now)


def _answer(request: HeartbeatRequest, outcome: HeartbeatResponse | KafkaError, version: int) -> HeartbeatResponse:
    if isinstance(outcome, KafkaError):
        # While the group is being loaded its members are given the benefit of the doubt, as Kafka does.
        loading = outcome.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=ErrorCode.NONE if loading else outcome.code)
    return outcome
