"""ControllerRegistration, version 0: a controller puts its listeners and features on record."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.CONTROLLER_REGISTRATION, on=Role.CONTROLLER)
async def handle(ctx: Context, request: ControllerRegistrationRequest) -> ControllerRegistrationResponse:
    require(ctx.caller, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    return await ctx.rooms.controller.register_controller(request)
