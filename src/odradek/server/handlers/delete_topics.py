"""DeleteTopics, versions 1 to 6: topics to delete, by name or (from version 6 on) by id.

The answer leaves once the deletion is durable in the metadata log; files go after `file.delete.delay.ms`.
"""

from __future__ import annotations

from odradek.metadata.controller.deletion import refuse_all
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.server.context import Context
from odradek.server.quotas import charge_mutations
from odradek.server.routes import Role, serves

_THROTTLING_ERROR_SINCE = 5


@serves(ApiKey.DELETE_TOPICS, on=Role.BROKER | Role.CONTROLLER)
async def handle(ctx: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    try:
        throttle_ms = charge_mutations(ctx, _partitions(ctx, request), strict_since=_THROTTLING_ERROR_SINCE)
        response = await ctx.node.controller.delete_topics(request, ctx.api_version)
        response.throttle_time_ms = throttle_ms
        return response
    except KafkaError as refused:
        return refuse_all(request, refused)


def _partitions(ctx: Context, request: DeleteTopicsRequest) -> int:
    topics = ctx.node.image.topics
    named = [topics.by_name.get(name) for name in request.topic_names]
    for topic in request.topics:
        named.append(topics.by_id.get(topic.topic_id) if topic.name is None else topics.by_name.get(topic.name))
    return sum(len(topic.partitions) for topic in named if topic is not None)
