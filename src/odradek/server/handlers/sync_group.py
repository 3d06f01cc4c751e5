"""SyncGroup, versions 0 to 5: the leader hands in the assignment; everyone gets their part once it is in the log."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.coordinators.groups import DecideOnGroup, GroupRunner
from odradek.server.handlers.context import Context
from odradek.server.handlers.fast_groups import fast_group_request
from odradek.server.net.routes import FastPath, Role, serves

_PROTOCOL_REQUIRED_SINCE = 5


def _fast(version: int, _: str) -> FastPath:
    def decide(runner: GroupRunner, request: SyncGroupRequest) -> DecideOnGroup | None:
        return None if _lacks_protocol(request, version) else _decide(request)

    return fast_group_request(ApiKey.SYNC_GROUP, version, decide=decide, answer=_answer)


@serves(ApiKey.SYNC_GROUP, on=Role.BROKER, fast_path=_fast)
async def handle(ctx: Context, request: SyncGroupRequest) -> SyncGroupResponse:
    if _lacks_protocol(request, ctx.api_version):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        require(ctx.caller, Operation.READ, ResourceType.GROUP, request.group_id)
        outcome = await ctx.rooms.groups.ask(request.group_id, _decide(request))
    except KafkaError as refused:
        outcome = refused
    return _answer(request, outcome, ctx.api_version)


def _lacks_protocol(request: SyncGroupRequest, version: int) -> bool:
    return version >= _PROTOCOL_REQUIRED_SINCE and None in (request.protocol_type, request.protocol_name)


def _decide(request: SyncGroupRequest) -> DecideOnGroup:
    return lambda shard, ticket, now: shard.sync(ticket, request, now)


def _answer(request: SyncGroupRequest, outcome: SyncGroupResponse | KafkaError, version: int) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=outcome.code) if isinstance(outcome, KafkaError) else outcome
