"""DescribeConfigs, versions 1 to 4: the configuration of topics, brokers, groups and loggers, in force and by source.

A broker describes itself alone, and of its keys those that it honours; the name "" stands for what was set for all
brokers. Client metrics subscriptions are not served.
"""

from __future__ import annotations

from odradek.metadata.image.configs import (
    ALL_BROKERS,
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from odradek.metadata.topic_names import name_error
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from odradek.security.acl import Operation
from odradek.server.access.authorizer import require_configs
from odradek.server.configs.described import (
    Wanted,
    describe_all_brokers,
    describe_broker,
    describe_group,
    describe_loggers,
    describe_topic,
)
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.DESCRIBE_CONFIGS, on=Role.BROKER | Role.CONTROLLER)
async def handle(ctx: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    results = []
    for resource in request.resources:
        keys = resource.configuration_keys
        wanted = Wanted(None if keys is None else tuple(keys), request.include_synonyms, request.include_documentation)
        try:
            configs = _describe(ctx, resource, wanted)
            failure = None
        except KafkaError as refused:
            configs, failure = [], refused
        results.append(
            DescribeConfigsResult(
                error_code=ErrorCode.NONE if failure is None else failure.code,
                error_message="" if failure is None else failure.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=configs,
            )
        )
    return DescribeConfigsResponse(results=results)


def _describe(ctx: Context, resource: DescribeConfigsResource, wanted: Wanted) -> list[DescribeConfigsResourceResult]:
    require_configs(ctx.caller, Operation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
    config, configs, name = ctx.rooms.config, ctx.rooms.image.configs, resource.resource_name
    match resource.resource_type:
        case kind if kind == TOPIC_RESOURCE:
            wrong = name_error(name)
            if wrong is not None:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
            if name not in ctx.rooms.image.topics.by_name:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return describe_topic(config, configs, name, wanted)
        case kind if kind == BROKER_RESOURCE:
            if name == ALL_BROKERS:
                return describe_all_brokers(configs.of(BROKER_RESOURCE, ALL_BROKERS), wanted)
            _check_broker_id(config.node_id, name, " or empty string,")
            return describe_broker(config, configs, wanted)
        case kind if kind == BROKER_LOGGER_RESOURCE:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
            _check_broker_id(config.node_id, name, "")
            return describe_loggers(wanted)
        case kind if kind == GROUP_RESOURCE:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            return describe_group(config, configs, name, wanted)
        case kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {kind} for resource {name}")


def _check_broker_id(own_id: int, name: str, alternative: str) -> None:
    try:
        broker_id = int(name)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None
    if broker_id != own_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {own_id}{alternative} but received {name}"
        )
