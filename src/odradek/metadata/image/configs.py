"""Dynamic configuration: what was set for a topic, a broker, or all brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from odradek.metadata.records import ConfigRecord
from odradek.protocol.codec import Message
from odradek.values import value

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
BROKER_LOGGER_RESOURCE = 8
"""Levels of loggers: asked for like configuration, but never on record."""
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32

ALL_BROKERS = ""
"""The name that holds the cluster-wide defaults of brokers."""

Resource: TypeAlias = tuple[int, str]
"""Kafka's resource type and the name."""

_NOTHING: Mapping[str, str] = {}


@value
class ConfigsImage:
    """Only what was set; defaults and files are read elsewhere."""

    by_resource: dict[Resource, dict[str, str]]

    def of(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.by_resource.get((resource_type, name), _NOTHING)

    def of_topic(self, name: str) -> Mapping[str, str]:
        return self.of(TOPIC_RESOURCE, name)

    def records(self) -> Iterator[Message]:
        """What a snapshot holds of this."""
        for (resource_type, resource_name), configs in self.by_resource.items():
            for name, text in configs.items():
                yield ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=text)


NO_CONFIGS = ConfigsImage(by_resource={})


class ConfigsDelta:
    """Changes to configuration on their way into a new image."""

    def __init__(self, base: ConfigsImage, *, in_place: bool = False) -> None:
        """`in_place` changes the base itself, which then must be a private copy."""
        self._base = base
        self._in_place = in_place
        self._changed: dict[Resource, dict[str, str]] = {}

    def replay(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        configs = self._changed.get(resource)
        if configs is None:
            configs = self._changed[resource] = dict(self._base.by_resource.get(resource, _NOTHING))
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value

    def forget_topic(self, name: str) -> None:
        """A removed topic takes its configuration along; no record says so."""
        resource = (TOPIC_RESOURCE, name)
        if resource in self._changed or resource in self._base.by_resource:
            self._changed[resource] = {}

    def changed_resources(self) -> tuple[Resource, ...]:
        return tuple(self._changed)

    def apply(self) -> ConfigsImage:
        if not self._changed:
            return self._base
        by_resource = self._base.by_resource if self._in_place else self._base.by_resource.copy()
        for resource, configs in self._changed.items():
            if configs:
                by_resource[resource] = configs
            else:
                by_resource.pop(resource, None)
        return ConfigsImage(by_resource)
