"""AlterConfigs, versions 0 to 2: the whole configuration of a topic, broker or group at once.

What is not named goes back to its default; IncrementalAlterConfigs, which replaces it, is the safer way.
"""

from __future__ import annotations

from odradek.metadata.image.configs import BROKER_RESOURCE, Resource
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from odradek.security.acl import Operation
from odradek.server.access.authorizer import require_configs
from odradek.server.configs.dynamic import check_is_this_broker
from odradek.server.handlers.context import Context
from odradek.server.handlers.forwarding import forward
from odradek.server.net.routes import Role, serves


@serves(ApiKey.ALTER_CONFIGS, on=Role.BROKER)
async def handle_on_broker(ctx: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Settings of another broker are asked of that one; all else is forwarded."""
    forwarded: list[AlterConfigsResource] = []
    answers: dict[Resource, AlterConfigsResourceResponse] = {}
    for each in request.resources:
        try:
            if each.resource_type == BROKER_RESOURCE and each.resource_name:
                check_is_this_broker(ctx.rooms.config, each.resource_name)
            forwarded.append(each)
        except KafkaError as refused:
            answers[each.resource_type, each.resource_name] = _refusal(each, refused)
    throttle_ms = 0
    if forwarded:
        response = await forward(ctx, AlterConfigsRequest(resources=forwarded, validate_only=request.validate_only))
        assert isinstance(response, AlterConfigsResponse)
        throttle_ms = response.throttle_time_ms
        answers |= {(each.resource_type, each.resource_name): each for each in response.responses}
    return AlterConfigsResponse(
        throttle_time_ms=throttle_ms,
        responses=[answers[each.resource_type, each.resource_name] for each in request.resources],
    )


@serves(ApiKey.ALTER_CONFIGS, on=Role.CONTROLLER, forwarded=True)
async def handle(ctx: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    permitted: list[AlterConfigsResource] = []
    answers: dict[Resource, AlterConfigsResourceResponse] = {}
    for each in request.resources:
        name = (each.resource_type, each.resource_name)
        try:
            require_configs(ctx.caller, Operation.ALTER_CONFIGS, *name)
            permitted.append(each)
        except KafkaError as refused:
            answers[name] = _refusal(each, refused)
    try:
        response = await ctx.rooms.controller.alter_configs(
            AlterConfigsRequest(resources=permitted, validate_only=request.validate_only)
        )
        answers |= {(each.resource_type, each.resource_name): each for each in response.responses}
    except KafkaError as refused:
        answers |= {(each.resource_type, each.resource_name): _refusal(each, refused) for each in permitted}
    return AlterConfigsResponse(
        responses=[answers[each.resource_type, each.resource_name] for each in request.resources]
    )


def _refusal(resource: AlterConfigsResource, why: KafkaError) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        error_code=why.code,
        error_message=why.message,
    )
