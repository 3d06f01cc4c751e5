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
from odradek.server.routes import Role, serves


@serves(ApiKey.CREATE_PARTITIONS, on=Role.BROKER | Role.CONTROLLER)
async def handle(ctx: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    try:
        return await ctx.node.controller.create_partitions(request)
    except KafkaError as refused:
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name=topic.name, error_code=refused.code, error_message=refused.message)
                for topic in request.topics
            ]
        )
