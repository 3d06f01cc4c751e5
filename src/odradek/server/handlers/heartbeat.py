"""Heartbeat, versions 0 to 4: a member of a classic group is alive, and hears whether it has to join again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.api import ApiKey
from odradek.protocol.codec import decoder, encoder
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedFrame
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.handlers.fast_groups import frame_head
from odradek.server.net.routes import FastAnswer, FastPath, Role, serves

if TYPE_CHECKING:
    from odradek.server.rooms import Rooms


def _fast(version: int, _: str) -> FastPath:
    """A group of a thousand members sends hundreds of them a second, and nothing else."""
    decode = decoder(HeartbeatRequest, version)
    encode = encoder(HeartbeatResponse, version)
    head = frame_head(ApiKey.HEARTBEAT, version)

    def handle(rooms: Rooms, frame: memoryview, position: int, correlation_id: int) -> FastAnswer:
        try:
            request, _ = decode(frame, position)
        except (MalformedFrame, IndexError):
            return None
        runner = rooms.groups.runner(request.group_id)
        if runner is None:
            return None
        try:
            code = runner.answer_at_once(lambda shard, now: shard.beat(request, now))
        except KafkaError as refused:
            code = refused.code
        if code is None:
            return None
        body = bodies.get(code)
        if body is None:
            body = bodies[code] = encode(HeartbeatResponse(error_code=code))
        return head(len(body), correlation_id) + body

    bodies: dict[ErrorCode, bytes] = {}
    return handle


@serves(ApiKey.HEARTBEAT, on=Role.BROKER, fast_path=_fast)
async def handle(ctx: Context, request: HeartbeatRequest) -> HeartbeatResponse:
    try:
        require(ctx.caller, Operation.READ, ResourceType.GROUP, request.group_id)
        response: HeartbeatResponse = await ctx.rooms.groups.ask(
            request.group_id, lambda shard, ticket, now: shard.heartbeat(ticket, request, now)
        )
    except KafkaError as refused:
        # While the group is being loaded its members are given the benefit of the doubt, as Kafka does.
        loading = refused.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=ErrorCode.NONE if loading else refused.code)
    return response
