"""DeleteTopics, versions 1 to 6: topics to delete, by name or (from version 6 on) by id.

The answer leaves once the deletion is durable in the metadata log; files go after `file.delete.delay.ms`.
"""

from __future__ import annotations

from odradek.metadata.controller.deletion import refuse_all
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import allowed
from odradek.server.access.quotas import charge_mutations
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves

_THROTTLING_ERROR_SINCE = 5


@serves(ApiKey.DELETE_TOPICS, on=Role.BROKER | Role.CONTROLLER, forwarded=True)
async def handle(ctx: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    refusals: list[DeletableTopicResult] = []
    if ctx.rooms.authorizer is not None:
        request, refusals = _permitted(ctx, request)
    try:
        throttle_ms = charge_mutations(
            ctx.rooms.quotas, ctx.caller, _partitions(ctx, request), strict=ctx.api_version >= _THROTTLING_ERROR_SINCE
        )
        response = await ctx.rooms.controller.delete_topics(request, ctx.api_version)
        response.throttle_time_ms = throttle_ms
    except KafkaError as refused:
        response = refuse_all(request, refused)
    response.responses += refusals
    return response


def _permitted(ctx: Context, request: DeleteTopicsRequest) -> tuple[DeleteTopicsRequest, list[DeletableTopicResult]]:
    """What the client may delete, and the answer about what it may not; an id does not give a name away."""
    names: list[str] = []
    topics: list[DeleteTopicState] = []
    refusals: list[DeletableTopicResult] = []
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for name in request.topic_names:
        if allowed(ctx.caller, Operation.DELETE, ResourceType.TOPIC, name):
            names.append(name)
        else:
            refusals.append(DeletableTopicResult(name=name, error_code=code, error_message=code.default_message))
    for topic in request.topics:
        known = ctx.rooms.image.topics.by_id.get(topic.topic_id)
        name_of = topic.name if topic.name is not None or known is None else known.name
        if name_of is None or allowed(ctx.caller, Operation.DELETE, ResourceType.TOPIC, name_of):
            topics.append(topic)
        else:
            shown = name_of if allowed(ctx.caller, Operation.DESCRIBE, ResourceType.TOPIC, name_of) else topic.name
            refusals.append(
                DeletableTopicResult(
                    name=shown, topic_id=topic.topic_id, error_code=code, error_message=code.default_message
                )
            )
    return DeleteTopicsRequest(topics=topics, topic_names=names, timeout_ms=request.timeout_ms), refusals


def _partitions(ctx: Context, request: DeleteTopicsRequest) -> int:
    topics = ctx.rooms.image.topics
    named = [topics.by_name.get(name) for name in request.topic_names]
    for topic in request.topics:
        named.append(topics.by_id.get(topic.topic_id) if topic.name is None else topics.by_name.get(topic.name))
    return sum(len(topic.partitions) for topic in named if topic is not None)
