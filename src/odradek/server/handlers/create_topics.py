"""CreateTopics, versions 2 to 7: new topics, by partition count or by hand-made assignment.

The answer leaves once the topics are durable in the metadata log and this node serves their partitions. With
`validate_only` nothing is created, and the answer says what would be.
With a controller mutation quota (KIP-599) the partitions asked for are counted against it.
"""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.server.context import Context
from odradek.server.quotas import charge_mutations
from odradek.server.routes import Role, serves

_THROTTLING_ERROR_SINCE = 6


@serves(ApiKey.CREATE_TOPICS, on=Role.BROKER | Role.CONTROLLER)
async def handle(ctx: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    try:
        wanted = 0 if request.validate_only else sum(_partitions(ctx, topic) for topic in request.topics)
        throttle_ms = charge_mutations(ctx, wanted, strict_since=_THROTTLING_ERROR_SINCE)
        response = await ctx.node.controller.create_topics(request)
        response.throttle_time_ms = throttle_ms
        return response
    except KafkaError as refused:
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=topic.name, error_code=refused.code, error_message=refused.message)
                for topic in request.topics
            ]
        )


def _partitions(ctx: Context, topic: CreatableTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return topic.num_partitions if topic.num_partitions > 0 else ctx.node.config.num_partitions
