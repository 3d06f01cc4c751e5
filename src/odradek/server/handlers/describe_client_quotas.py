"""DescribeClientQuotas, versions 0 and 1: the quotas of all entities that a filter matches."""

from __future__ import annotations

from odradek.metadata.image.client_quotas import CLIENT_ID, IP, USER, Entity
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves

_EXACT = 0
_DEFAULT = 1
_SPECIFIED = 2


@serves(ApiKey.DESCRIBE_CLIENT_QUOTAS, on=Role.BROKER)
async def handle(ctx: Context, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    try:
        require(ctx.caller, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
        _check(request.components)
    except KafkaError as refused:
        return DescribeClientQuotasResponse(error_code=refused.code, error_message=refused.message, entries=None)
    entries = [
        EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            values=[ValueData(key=key, value=limit) for key, limit in quotas.items()],
        )
        for entity, quotas in ctx.rooms.image.client_quotas.by_entity.items()
        if _matches(entity, request)
    ]
    return DescribeClientQuotasResponse(error_message="", entries=entries)


def _matches(entity: Entity, request: DescribeClientQuotasRequest) -> bool:
    if request.strict and len(entity) != len(request.components):
        return False
    names = dict(entity)
    for component in request.components:
        if component.entity_type not in names:
            return False
        if component.match_type != _SPECIFIED and names[component.entity_type] != component.match:
            return False
    return True


def _check(components: list[ComponentData]) -> None:
    seen: dict[str, None] = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in seen:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        _check_match(component)
        seen[kind] = None
    if IP in seen and len(seen) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component.",
        )


def _check_match(component: ComponentData) -> None:
    if component.match_type == _EXACT:
        if component.match is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match string to null."
            )
        return
    if component.match_type not in (_DEFAULT, _SPECIFIED):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
    if component.match is not None:
        kind = "DEFAULT" if component.match_type == _DEFAULT else "SPECIFIED"
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Request specified MATCH_TYPE_{kind}, but also specified a match string."
        )
