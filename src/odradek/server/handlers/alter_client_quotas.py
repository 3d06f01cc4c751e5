"""AlterClientQuotas, versions 0 and 1: quotas of users, client ids and addresses, in force when the answer leaves."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.ALTER_CLIENT_QUOTAS, on=Role.BROKER | Role.CONTROLLER, forwarded=True)
async def handle(ctx: Context, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    try:
        require(ctx.caller, Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
        return await ctx.rooms.controller.alter_client_quotas(request)
    except KafkaError as refused:
        return AlterClientQuotasResponse(
            entries=[
                EntryData(error_code=refused.code, error_message=refused.message, entity=each.entity)
                for each in request.entries
            ]
        )
