"""AlterUserScramCredentials, version 0: credentials on record for when SASL is served, which it is not yet."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, on=Role.BROKER | Role.CONTROLLER, forwarded=True)
async def handle(ctx: Context, request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    try:
        require(ctx.caller, Operation.ALTER, ResourceType.CLUSTER)
        return await ctx.rooms.controller.alter_scram_credentials(request)
    except KafkaError as refused:
        named = [each.name for each in request.deletions] + [each.name for each in request.upsertions]
        return AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResult(user=user, error_code=refused.code, error_message=refused.message)
                for user in dict.fromkeys(named)
            ]
        )
