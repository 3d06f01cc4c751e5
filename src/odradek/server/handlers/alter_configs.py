"""AlterConfigs, versions 0 to 2: the whole configuration of a topic, broker or group at once.

What is not named goes back to its default; IncrementalAlterConfigs, which replaces it, is the safer way.
"""

from __future__ import annotations

from odradek.metadata.image.configs import Resource
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from odradek.security.acl import Operation
from odradek.server.authorizer import require_configs
from odradek.server.context import Context
from odradek.server.routes import Role, serves


@serves(ApiKey.ALTER_CONFIGS, on=Role.BROKER | Role.CONTROLLER)
async def handle(ctx: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    permitted: list[AlterConfigsResource] = []
    answers: dict[Resource, AlterConfigsResourceResponse] = {}
    for each in request.resources:
        name = (each.resource_type, each.resource_name)
        try:
            require_configs(ctx, Operation.ALTER_CONFIGS, *name)
            permitted.append(each)
        except KafkaError as refused:
            answers[name] = _refusal(each, refused)
    try:
        response = await ctx.node.controller.alter_configs(
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
