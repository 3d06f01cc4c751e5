"""CreateAcls, versions 1 to 3: access rules, in force when the answer leaves."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require, require_authorizer
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.CREATE_ACLS, on=Role.BROKER | Role.CONTROLLER, forwarded=True)
async def handle(ctx: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    try:
        require(ctx.caller, Operation.ALTER, ResourceType.CLUSTER)
        require_authorizer(ctx.caller)
        return await ctx.rooms.controller.create_acls(request)
    except KafkaError as refused:
        refusal = AclCreationResult(error_code=refused.code, error_message=refused.message)
        return CreateAclsResponse(results=[refusal for _ in request.creations])
