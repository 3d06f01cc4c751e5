"""ListConfigResources, versions 0 and 1: the resources that have, or could have, a configuration (KIP-1142).

Topics and brokers are listed whether or not something was set for them, groups only if something was. Version 0 asks
for client metrics subscriptions, of which there are none here.
"""

from __future__ import annotations

from odradek.metadata.image.configs import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves

_SUPPORTED = (TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)


@serves(ApiKey.LIST_CONFIG_RESOURCES, on=Role.BROKER)
async def handle(ctx: Context, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    require(ctx.caller, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
    types = list(dict.fromkeys(request.resource_types)) or list(_SUPPORTED)
    if ctx.api_version == 0:
        types = [CLIENT_METRICS_RESOURCE]
    if any(each not in _SUPPORTED for each in types):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    image = ctx.rooms.image
    names: list[tuple[int, str]] = []
    if GROUP_RESOURCE in types:
        names += [(kind, name) for kind, name in image.configs.by_resource if kind == GROUP_RESOURCE]
    for kind in (BROKER_LOGGER_RESOURCE, BROKER_RESOURCE):
        if kind in types:
            names += [(kind, str(broker_id)) for broker_id in image.cluster.brokers]
    if TOPIC_RESOURCE in types:
        names += [(TOPIC_RESOURCE, name) for name in image.topics.by_name]
    return ListConfigResourcesResponse(
        config_resources=[ConfigResource(resource_name=name, resource_type=kind) for kind, name in names]
    )
