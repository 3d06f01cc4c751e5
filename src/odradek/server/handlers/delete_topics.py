"""DeleteTopics, versions 1 to 6: topics to delete, by name or (from version 6 on) by id.

The answer leaves once the deletion is durable in the metadata log; files go after `file.delete.delay.ms`.
"""

from __future__ import annotations

from odradek.metadata.controller.deletion import refuse_all
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.server.context import Context
from odradek.server.routes import Role, serves


@serves(ApiKey.DELETE_TOPICS, on=Role.BROKER | Role.CONTROLLER)
async def handle(ctx: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    try:
        return await ctx.node.controller.delete_topics(request, ctx.api_version)
    except KafkaError as refused:
        return refuse_all(request, refused)
