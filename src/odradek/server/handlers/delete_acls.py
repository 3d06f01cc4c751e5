"""DeleteAcls, versions 1 to 3: the access rules that match filters go, and no longer count when the answer leaves."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require, require_authorizer
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.DELETE_ACLS, on=Role.BROKER | Role.CONTROLLER, forwarded=True)
async def handle(ctx: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    try:
        require(ctx.caller, Operation.ALTER, ResourceType.CLUSTER)
        require_authorizer(ctx.caller)
        return await ctx.rooms.controller.delete_acls(request)
    except KafkaError as refused:
        refusal = DeleteAclsFilterResult(error_code=refused.code, error_message=refused.message, matching_acls=[])
        return DeleteAclsResponse(filter_results=[refusal for _ in request.filters])
