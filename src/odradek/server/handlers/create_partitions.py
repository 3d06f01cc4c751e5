"""CreatePartitions, versions 0 to 3: more partitions for topics that exist; or only whether they could have them."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from odradek.server.context import Context
from odradek.server.quotas import charge_mutations
from odradek.server.routes import Role, serves

_THROTTLING_ERROR_SINCE = 3


@serves(ApiKey.CREATE_PARTITIONS, on=Role.BROKER | Role.CONTROLLER)
async def handle(ctx: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    try:
        topics = ctx.node.image.topics.by_name
        wanted = sum(
            max(each.count - len(topics[each.name].partitions), 0) for each in request.topics if each.name in topics
        )
        throttle_ms = charge_mutations(
            ctx, 0 if request.validate_only else wanted, strict_since=_THROTTLING_ERROR_SINCE
        )
        response = await ctx.node.controller.create_partitions(request)
        response.throttle_time_ms = throttle_ms
        return response
    except KafkaError as refused:
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name=topic.name, error_code=refused.code, error_message=refused.message)
                for topic in request.topics
            ]
        )
