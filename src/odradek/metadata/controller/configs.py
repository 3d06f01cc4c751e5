"""Changing the configuration of topics, brokers and groups: Kafka's checks in Kafka's order, with Kafka's words.

What a resource may be set to is a table of keys and a check, both arguments: the metadata room does not know what a
broker can do. A resource is changed as a whole or not at all; the others of its request do not mind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TypeVar

from odradek.configdef import ConfigTable, ConfigType, value_text
from odradek.decisions import Decision
from odradek.metadata.controller import decided, repeated
from odradek.metadata.controller.leadership import forgotten_eligible_leaders
from odradek.metadata.controller.topic_rules import MIN_INSYNC_REPLICAS
from odradek.metadata.features import ELIGIBLE_LEADER_REPLICAS
from odradek.metadata.image import Image
from odradek.metadata.image.configs import ALL_BROKERS, BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, Resource
from odradek.metadata.image.topics import TopicImage
from odradek.metadata.records import ConfigRecord
from odradek.metadata.topic_names import name_error
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages import alter_configs as whole
from odradek.protocol.messages import incremental_alter_configs as incremental
from odradek.values import value

ResourceT = TypeVar("ResourceT", whole.AlterConfigsResource, incremental.AlterConfigsResource)

AnswerT = TypeVar("AnswerT")


class Operation(IntEnum):
    """What IncrementalAlterConfigs does to one key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@value
class ConfigRules:
    """What the node that decides knows of configuration."""

    tables: Mapping[int, ConfigTable]
    """The keys of each type of resource: which are lists, and with which default."""
    check: Callable[[Resource, Mapping[str, str]], None]
    """KafkaError unless the resource may have these and nothing else."""


def incremental_alter_configs(
    image: Image, request: incremental.IncrementalAlterConfigsRequest, *, rules: ConfigRules
) -> Decision[Message, incremental.IncrementalAlterConfigsResponse]:
    """Single keys set, deleted, appended to or subtracted from."""

    def wanted(resource: incremental.AlterConfigsResource) -> dict[str, str | None]:
        _check_resource(resource.resource_type, [config.name for config in resource.configs])
        without_value = [
            config.name
            for config in resource.configs
            if config.value is None and config.config_operation != Operation.DELETE
        ]
        _refuse_nulls(without_value)
        before = image.configs.of(resource.resource_type, resource.resource_name)
        table = rules.tables[resource.resource_type]
        return {
            config.name: _changed(config, before.get(config.name), table, resource.resource_type)
            for config in resource.configs
        }

    records, failures = _alter(image, request.resources, wanted, rules)
    answers = _answers(incremental.AlterConfigsResourceResponse, request.resources, failures)
    response = incremental.IncrementalAlterConfigsResponse(responses=answers)
    return decided(() if request.validate_only else records, response)


def alter_configs(
    image: Image, request: whole.AlterConfigsRequest, *, rules: ConfigRules
) -> Decision[Message, whole.AlterConfigsResponse]:
    """All keys of a resource at once; those that are not named are deleted."""

    def wanted(resource: whole.AlterConfigsResource) -> dict[str, str | None]:
        _check_resource(resource.resource_type, [config.name for config in resource.configs])
        _refuse_nulls([config.name for config in resource.configs if config.value is None])
        before = image.configs.of(resource.resource_type, resource.resource_name)
        named: dict[str, str | None] = {config.name: config.value for config in resource.configs}
        return named | dict.fromkeys(name for name in before if name not in named)

    records, failures = _alter(image, request.resources, wanted, rules)
    answers = _answers(whole.AlterConfigsResourceResponse, request.resources, failures)
    response = whole.AlterConfigsResponse(responses=answers)
    return decided(() if request.validate_only else records, response)


def _alter(
    image: Image,
    resources: Sequence[ResourceT],
    wanted: Callable[[ResourceT], dict[str, str | None]],
    rules: ConfigRules,
) -> tuple[list[Message], list[KafkaError | None]]:
    """The records of all resources that may be changed, and for each resource why it may not."""
    names = [(resource.resource_type, resource.resource_name) for resource in resources]
    twice = repeated(names)
    records: list[Message] = []
    failures: list[KafkaError | None] = []
    for resource, name in zip(resources, names, strict=True):
        try:
            if name in twice:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            changes = wanted(resource)
            _check_min_isr(image, name, changes)
            before = image.configs.of(*name)
            after = {key: text for key, text in {**before, **changes}.items() if text is not None}
            _check_name(name)
            rules.check(name, _judged(after, before, rules.tables[name[0]]))
            _check_existence(image, name)
        except KafkaError as refused:
            failures.append(refused)
            continue
        failures.append(None)
        records += [
            ConfigRecord(resource_type=name[0], resource_name=name[1], name=key, value=text)
            for key, text in changes.items()
            # A broker's key is written again even where it stays the same: Kafka's way to have a file read anew.
            if text != before.get(key) or name[0] == BROKER_RESOURCE
        ]
    if _with_elr(image):
        records += _forgotten_eligible_leaders(image, records)
    return records, failures


def _with_elr(image: Image) -> bool:
    return image.features.level(ELIGIBLE_LEADER_REPLICAS) > 0


def _check_min_isr(image: Image, resource: Resource, changes: Mapping[str, str | None]) -> None:
    """With eligible leaders min.insync.replicas is the cluster's or a topic's, never a broker's (KIP-966)."""
    resource_type, name = resource
    if resource_type != BROKER_RESOURCE or MIN_INSYNC_REPLICAS not in changes or not _with_elr(image):
        return
    if name != ALL_BROKERS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled."
        )
    if changes[MIN_INSYNC_REPLICAS] is None:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled."
        )


def _forgotten_eligible_leaders(image: Image, records: Sequence[Message]) -> Iterator[Message]:
    """Who was eligible under another min.insync.replicas may lack what is acknowledged under this one."""
    changed = [record for record in records if isinstance(record, ConfigRecord) and record.name == MIN_INSYNC_REPLICAS]
    if any(record.resource_type == BROKER_RESOURCE for record in changed):
        yield from forgotten_eligible_leaders(image.topics.by_name.values())
        return
    for record in changed:
        topic = image.topics.by_name[record.resource_name]
        before = image.configs.of_topic(topic.name).get(MIN_INSYNC_REPLICAS)
        if _may_differ(topic, before, record.value):
            yield from forgotten_eligible_leaders([topic])


def _may_differ(topic: TopicImage, before: str | None, after: str | None) -> bool:
    """Whether another number of replicas must be in sync; no partition needs more than it has. Where a default counts
    before or after, nobody knows here."""
    if before is None or after is None:
        return True
    return any(min(int(after), len(each.replicas)) != min(int(before), len(each.replicas)) for each in topic.partitions)


def _judged(after: Mapping[str, str], before: Mapping[str, str], table: ConfigTable) -> dict[str, str]:
    """All but what another release put on record and nobody touches now: it must not stand in the way of the rest."""
    return {name: text for name, text in after.items() if name in table or before.get(name) != text}


def _answers(
    make: Callable[..., AnswerT], resources: Sequence[ResourceT], failures: Sequence[KafkaError | None]
) -> list[AnswerT]:
    return [
        make(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            error_code=ErrorCode.NONE if failure is None else failure.code,
            error_message=None if failure is None else failure.message,
        )
        for resource, failure in zip(resources, failures, strict=True)
    ]


def _check_resource(resource_type: int, keys: list[str]) -> None:
    if len(dict.fromkeys(keys)) < len(keys):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if resource_type not in (TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")


def _refuse_nulls(keys: list[str]) -> None:
    if keys:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(keys)}")


def _changed(
    config: incremental.AlterableConfig, before: str | None, table: ConfigTable, resource_type: int
) -> str | None:
    operation, given = config.config_operation, config.value or ""
    if operation == Operation.SET:
        return given
    if operation == Operation.DELETE:
        return None
    if operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")
    key = table.get(config.name)
    if key is None or key.type is not ConfigType.LIST:
        verb = Operation(operation).name
        if resource_type == BROKER_RESOURCE:
            why = f"Config value {verb.lower()} is not allowed for config key: {config.name}"
        else:
            why = f"Can't {verb} to key {config.name} because its type is not LIST."
        raise KafkaError(ErrorCode.INVALID_CONFIG, why)
    text = before if before is not None else value_text(key.default)
    parts = [part for part in (text or "").split(",") if part]
    for part in given.split(","):
        if operation == Operation.APPEND and part not in parts:
            parts.append(part)
        elif operation == Operation.SUBTRACT and part in parts:
            parts.remove(part)
    return ",".join(parts)


def _check_name(resource: Resource) -> None:
    resource_type, name = resource
    if resource_type == TOPIC_RESOURCE:
        wrong = name_error(name)
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        if wrong is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
    elif resource_type == GROUP_RESOURCE and not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")


def _check_existence(image: Image, resource: Resource) -> None:
    resource_type, name = resource
    if resource_type == TOPIC_RESOURCE and name not in image.topics.by_name:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
