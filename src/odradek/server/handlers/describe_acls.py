"""DescribeAcls, versions 1 to 3: the access rules that match a filter, by the resource they speak of."""

from __future__ import annotations

from odradek.metadata.controller.acls import acl_filter
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require, require_authorizer
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.DESCRIBE_ACLS, on=Role.BROKER | Role.CONTROLLER)
async def handle(ctx: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    require(ctx.caller, Operation.DESCRIBE, ResourceType.CLUSTER)
    require_authorizer(ctx.caller)
    wanted = acl_filter(request)
    resources: dict[tuple[int, str, int], list[AclDescription]] = {}
    for acl in ctx.rooms.image.acls.by_id.values():
        if wanted.matches(acl):
            resources.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(
                AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission_type,
                )
            )
    return DescribeAclsResponse(
        error_message="",
        resources=[
            DescribeAclsResource(resource_type=kind, resource_name=name, pattern_type=pattern, acls=acls)
            for (kind, name, pattern), acls in resources.items()
        ],
    )
