"""CreatePartitions, versions 0 to 3: more partitions for topics that exist; or only whether they could have them."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import allowed
from odradek.server.access.quotas import charge_mutations
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves

_THROTTLING_ERROR_SINCE = 3


@serves(ApiKey.CREATE_PARTITIONS, on=Role.BROKER | Role.CONTROLLER, forwarded=True)
async def handle(ctx: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    permitted: list[CreatePartitionsTopic] = []
    refusals: list[CreatePartitionsTopicResult] = []
    for topic in request.topics:
        if allowed(ctx.caller, Operation.ALTER, ResourceType.TOPIC, topic.name):
            permitted.append(topic)
        else:
            refusals.append(_refusal(topic, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
    request = CreatePartitionsRequest(
        topics=permitted, timeout_ms=request.timeout_ms, validate_only=request.validate_only
    )
    try:
        wanted = 0 if request.validate_only else _new_partitions(ctx, request)
        throttle_ms = charge_mutations(
            ctx.rooms.quotas, ctx.caller, wanted, strict=ctx.api_version >= _THROTTLING_ERROR_SINCE
        )
        response = await ctx.rooms.controller.create_partitions(request)
        response.throttle_time_ms = throttle_ms
    except KafkaError as refused:
        response = CreatePartitionsResponse(results=[_refusal(topic, refused) for topic in permitted])
    response.results += refusals
    return response


def _new_partitions(ctx: Context, request: CreatePartitionsRequest) -> int:
    topics = ctx.rooms.image.topics.by_name
    return sum(max(each.count - len(topics[each.name].partitions), 0) for each in request.topics if each.name in topics)


def _refusal(topic: CreatePartitionsTopic, why: KafkaError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=topic.name, error_code=why.code, error_message=why.message)
