"""UpdateFeatures, versions 0 to 2: levels of features, all that were asked for or none of them.

A downgrade that could lose metadata is refused, safe or not, as Kafka does. Changing kraft.version is not done yet.
"""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.UPDATE_FEATURES, on=Role.BROKER | Role.CONTROLLER, forwarded=True)
async def handle(ctx: Context, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    require(ctx.caller, Operation.ALTER, ResourceType.CLUSTER)
    return await ctx.rooms.controller.update_features(request, ctx.api_version)
