"""IncrementalAlterConfigs, versions 0 and 1: single keys of topics, brokers, groups and loggers.

Everything but levels of loggers goes through the controller and is on record when the answer leaves; those are this
process's own. With `validate_only` nothing changes.
"""

from __future__ import annotations

from odradek.metadata.image.configs import BROKER_LOGGER_RESOURCE
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek.security.acl import Operation
from odradek.server.authorizer import require_configs
from odradek.server.broker_configs import check_is_this_broker
from odradek.server.context import Context
from odradek.server.loggers import check_levels, set_levels
from odradek.server.routes import Role, serves


@serves(ApiKey.INCREMENTAL_ALTER_CONFIGS, on=Role.BROKER | Role.CONTROLLER)
async def handle(ctx: Context, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    on_record: list[AlterConfigsResource] = []
    answers: list[AlterConfigsResourceResponse] = []
    for each in request.resources:
        try:
            require_configs(ctx, Operation.ALTER_CONFIGS, each.resource_type, each.resource_name)
        except KafkaError as refused:
            answers.append(_answer(each, refused))
            continue
        if each.resource_type == BROKER_LOGGER_RESOURCE:
            answers.append(_change_loggers(ctx, each, validate_only=request.validate_only))
        else:
            on_record.append(each)
    if on_record:
        try:
            answer = await ctx.node.controller.incremental_alter_configs(
                IncrementalAlterConfigsRequest(resources=on_record, validate_only=request.validate_only)
            )
            answers = [*answer.responses, *answers]
        except KafkaError as refused:
            answers = [*(_answer(each, refused) for each in on_record), *answers]
    return IncrementalAlterConfigsResponse(responses=answers)


def _change_loggers(
    ctx: Context, resource: AlterConfigsResource, *, validate_only: bool
) -> AlterConfigsResourceResponse:
    try:
        check_is_this_broker(ctx.node.config, resource.resource_name)
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
