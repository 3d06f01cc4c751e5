"""CreateTopics, versions 2 to 7: new topics, by partition count or by hand-made assignment.

The answer leaves once the topics are durable in the metadata log and this node serves their partitions. With
`validate_only` nothing is created, and the answer says what would be.
With a controller mutation quota (KIP-599) the partitions asked for are counted against it.
"""

from __future__ import annotations

from odradek.metadata.topic_names import is_internal
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import allowed
from odradek.server.access.quotas import charge_mutations
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves

_THROTTLING_ERROR_SINCE = 6


@serves(ApiKey.CREATE_TOPICS, on=Role.BROKER | Role.CONTROLLER, forwarded=True)
async def handle(ctx: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    permitted, refusals = _sort(ctx, request)
    request = CreateTopicsRequest(topics=permitted, timeout_ms=request.timeout_ms, validate_only=request.validate_only)
    try:
        wanted = 0 if request.validate_only else sum(_partitions(ctx, topic) for topic in permitted)
        throttle_ms = charge_mutations(
            ctx.rooms.quotas, ctx.caller, wanted, strict=ctx.api_version >= _THROTTLING_ERROR_SINCE
        )
        response = await ctx.rooms.controller.create_topics(request)
        response.throttle_time_ms = throttle_ms
    except KafkaError as refused:
        response = CreateTopicsResponse(topics=[_refusal(topic, refused) for topic in permitted])
    if ctx.rooms.authorizer is not None:
        _hide_configs(ctx, response)
    response.topics += refusals
    return response


def _sort(ctx: Context, request: CreateTopicsRequest) -> tuple[list[CreatableTopic], list[CreatableTopicResult]]:
    """What the client may create, and the answer about what it may not."""
    if allowed(ctx.caller, Operation.CREATE, ResourceType.CLUSTER):
        return request.topics, []
    permitted: list[CreatableTopic] = []
    refusals: list[CreatableTopicResult] = []
    for topic in request.topics:
        if (ctx.caller.is_peer and is_internal(topic.name)) or allowed(
            ctx.caller, Operation.CREATE, ResourceType.TOPIC, topic.name
        ):
            permitted.append(topic)
        else:
            refusals.append(_refusal(topic, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
    return permitted, refusals


def _hide_configs(ctx: Context, response: CreateTopicsResponse) -> None:
    for topic in response.topics:
        if not topic.error_code and not allowed(ctx.caller, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name):
            topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            topic.configs, topic.num_partitions, topic.replication_factor = None, -1, -1


def _refusal(topic: CreatableTopic, why: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=topic.name, error_code=why.code, error_message=why.message)


def _partitions(ctx: Context, topic: CreatableTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return topic.num_partitions if topic.num_partitions > 0 else ctx.rooms.config.num_partitions
