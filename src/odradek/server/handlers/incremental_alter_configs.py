"""IncrementalAlterConfigs, versions 0 and 1: single keys of topics, brokers, groups and loggers.

Everything but levels of loggers goes through the controller and is on record when the answer leaves; those are this
process's own. A broker forwards the rest, but settings of another broker: those are asked of that one. With
`validate_only` nothing changes.
"""

from __future__ import annotations

from odradek.metadata.controller import repeated
from odradek.metadata.image.configs import BROKER_LOGGER_RESOURCE, BROKER_RESOURCE, Resource
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek.security.acl import Operation
from odradek.server.access.authorizer import require_configs
from odradek.server.configs.dynamic import check_is_this_broker
from odradek.server.configs.loggers import check_levels, set_levels
from odradek.server.handlers.context import Context
from odradek.server.handlers.forwarding import forward
from odradek.server.net.routes import Role, serves


@serves(ApiKey.INCREMENTAL_ALTER_CONFIGS, on=Role.BROKER)
async def handle_on_broker(ctx: Context, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    twice = repeated((each.resource_type, each.resource_name) for each in request.resources)
    forwarded: list[AlterConfigsResource] = []
    answers: dict[Resource, AlterConfigsResourceResponse] = {}
    for each in request.resources:
        name = (each.resource_type, each.resource_name)
        try:
            if each.resource_type == BROKER_RESOURCE and each.resource_name:
                check_is_this_broker(ctx.rooms.config, each.resource_name)
            if each.resource_type == BROKER_LOGGER_RESOURCE and name not in twice:
                require_configs(ctx.caller, Operation.ALTER_CONFIGS, *name)
                answers[name] = _change_loggers(ctx, each, validate_only=request.validate_only)
                continue
        except KafkaError as refused:
            answers[name] = _answer(each, refused)
        else:
            forwarded.append(each)
    throttle_ms = 0
    if forwarded:
        rest = IncrementalAlterConfigsRequest(resources=forwarded, validate_only=request.validate_only)
        response = await forward(ctx, rest)
        assert isinstance(response, IncrementalAlterConfigsResponse)
        throttle_ms = response.throttle_time_ms
        answers |= {(each.resource_type, each.resource_name): each for each in response.responses}
    return IncrementalAlterConfigsResponse(
        throttle_time_ms=throttle_ms,
        responses=[answers[each.resource_type, each.resource_name] for each in request.resources],
    )


@serves(ApiKey.INCREMENTAL_ALTER_CONFIGS, on=Role.CONTROLLER, forwarded=True)
async def handle(ctx: Context, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    twice = repeated((each.resource_type, each.resource_name) for each in request.resources)
    on_record: list[AlterConfigsResource] = []
    answers: dict[Resource, AlterConfigsResourceResponse] = {}
    for each in request.resources:
        name = (each.resource_type, each.resource_name)
        try:
            require_configs(ctx.caller, Operation.ALTER_CONFIGS, *name)
        except KafkaError as refused:
            answers[name] = _answer(each, refused)
            continue
        if each.resource_type == BROKER_LOGGER_RESOURCE and name not in twice:
            answers[name] = _change_loggers(ctx, each, validate_only=request.validate_only)
        else:
            on_record.append(each)
    if on_record:
        try:
            response = await ctx.rooms.controller.incremental_alter_configs(
                IncrementalAlterConfigsRequest(resources=on_record, validate_only=request.validate_only)
            )
            answers |= {(each.resource_type, each.resource_name): each for each in response.responses}
        except KafkaError as refused:
            answers |= {(each.resource_type, each.resource_name): _answer(each, refused) for each in on_record}
    return IncrementalAlterConfigsResponse(
        responses=[answers[each.resource_type, each.resource_name] for each in request.resources]
    )


def _change_loggers(
    ctx: Context, resource: AlterConfigsResource, *, validate_only: bool
) -> AlterConfigsResourceResponse:
    try:
        check_is_this_broker(ctx.rooms.config, resource.resource_name)
        check_levels(resource.configs)
        if not validate_only:
            set_levels(resource.configs)
    except KafkaError as refused:
        return _answer(resource, refused)
    return _answer(resource, None)


def _answer(resource: AlterConfigsResource, failure: KafkaError | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        error_code=ErrorCode.NONE if failure is None else failure.code,
        error_message=None if failure is None else failure.message,
    )
