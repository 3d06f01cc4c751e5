"""ConsumerGroupHeartbeat, versions 0 and 1: a member of a KIP-848 group comes, stays or goes, and hears what it owns.

From version 1 on a member brings its own id and may subscribe by regular expression. A cluster that has not finalized
group.version 1 answers UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from odradek.coordinator.group.joining import Joiner
from odradek.ids import uuid_text
from odradek.metadata.features import GROUP_VERSION
from odradek.metadata.uuids import random_uuid
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require, topic_check
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.CONSUMER_GROUP_HEARTBEAT, on=Role.BROKER)
async def handle(ctx: Context, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    if ctx.rooms.image.features.level(GROUP_VERSION) < 1:
        return ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=ErrorCode.UNSUPPORTED_VERSION.default_message
        )
    fresh_id = "" if request.member_id else uuid_text(random_uuid(ctx.rooms.world.entropy))
    joiner = Joiner(ctx.caller.client_id or "", ctx.caller.host, ctx.api_version, fresh_id)
    try:
        require(ctx.caller, Operation.READ, ResourceType.GROUP, request.group_id)
        for topic in request.subscribed_topic_names or ():
            require(ctx.caller, Operation.DESCRIBE, ResourceType.TOPIC, topic)
        may_see = topic_check(ctx.caller, Operation.DESCRIBE)
        response: ConsumerGroupHeartbeatResponse = await ctx.rooms.groups.ask(
            request.group_id,
            lambda shard, ticket, now: shard.consumer_heartbeat(ticket, request, joiner, now, may_see=may_see),
        )
    except KafkaError as refused:
        return ConsumerGroupHeartbeatResponse(error_code=refused.code, error_message=refused.message)
    return response
