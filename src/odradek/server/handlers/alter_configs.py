"""AlterConfigs, versions 0 to 2: the whole configuration of a topic, broker or group at once.

What is not named goes back to its default; IncrementalAlterConfigs, which replaces it, is the safer way.
"""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from odradek.server.context import Context
from odradek.server.routes import Role, serves


@serves(ApiKey.ALTER_CONFIGS, on=Role.BROKER | Role.CONTROLLER)
async def handle(ctx: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    try:
        return await ctx.node.controller.alter_configs(request)
    except KafkaError as refused:
        return AlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                    error_code=refused.code,
                    error_message=refused.message,
                )
                for each in request.resources
            ]
        )
