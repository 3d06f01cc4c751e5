"""JoinGroup, versions 0 to 9: a member enters a classic group; the answer leaves when its generation begins."""

from __future__ import annotations

from odradek.coordinator.group.joining import Joiner
from odradek.ports import Entropy
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.coordinators.groups import DecideOnGroup, GroupRunner
from odradek.server.handlers.context import Context
from odradek.server.handlers.fast_groups import fast_group_request
from odradek.server.net.routes import FastPath, Role, serves

_NULL_PROTOCOL_SINCE = 7


def _fast(version: int, _: str) -> FastPath:
    # Of a member that is known, nothing is asked but what is in its request.
    joiner = Joiner("", "", version, "")

    def decide(runner: GroupRunner, request: JoinGroupRequest) -> DecideOnGroup | None:
        return _decide(request, joiner) if runner.shard.knows(request.group_id, request.member_id) else None

    return fast_group_request(ApiKey.JOIN_GROUP, version, decide=decide, answer=_answer)


@serves(ApiKey.JOIN_GROUP, on=Role.BROKER, fast_path=_fast)
async def handle(ctx: Context, request: JoinGroupRequest) -> JoinGroupResponse:
    joiner = Joiner(ctx.caller.client_id or "", ctx.caller.host, ctx.api_version, _fresh_id(ctx.rooms.world.entropy))
    try:
        require(ctx.caller, Operation.READ, ResourceType.GROUP, request.group_id)
        outcome = await ctx.rooms.groups.ask(request.group_id, _decide(request, joiner))
    except KafkaError as refused:
        outcome = refused
    return _answer(request, outcome, ctx.api_version)


def _decide(request: JoinGroupRequest, joiner: Joiner) -> DecideOnGroup:
    return lambda shard, ticket, now: shard.join(ticket, request, joiner, now)


def _answer(request: JoinGroupRequest, outcome: JoinGroupResponse | KafkaError, version: int) -> JoinGroupResponse:
    if isinstance(outcome, KafkaError):
        full = outcome.code == ErrorCode.GROUP_MAX_SIZE_REACHED
        response = JoinGroupResponse(error_code=outcome.code, member_id="" if full else request.member_id)
    else:
        response = outcome
    if response.error_code and version >= _NULL_PROTOCOL_SINCE:
        response.protocol_name = None
    return response


def _fresh_id(entropy: Entropy) -> str:
    """A random UUID as Java's class of that name writes it."""
    number = int.from_bytes(entropy.random_bytes(16), "big")
    number = number & ~(0xF << 76) | 4 << 76
    number = number & ~(0x3 << 62) | 2 << 62
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
