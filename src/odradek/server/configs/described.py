"""A resource's configuration as DescribeConfigs tells it: value, source, synonyms, type and meaning of every key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.configdef import ConfigKey, ConfigTable, ConfigType, Dynamic, value_text
from odradek.metadata.image.configs import GROUP_RESOURCE, TOPIC_RESOURCE, ConfigsImage
from odradek.protocol.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsSynonym
from odradek.server.configs.dynamic import BROKER_KEYS, ConfigSource, Sources, broker_sources
from odradek.server.configs.group_configs import GROUP_CONFIGS
from odradek.server.configs.loggers import logger_levels
from odradek.server.configs.node_config import NodeConfig
from odradek.server.configs.settings import NODE_CONFIGS
from odradek.storage.config import TOPIC_CONFIGS, log_config
from odradek.values import value

_UNKNOWN_TYPE = 0

_UNITS = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)
_SYNONYMS = {name: names for names in _UNITS for name in names} | {
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
}
"""Keys of a broker that say the same in several units, the strongest first."""


@value
class Wanted:
    """What a request wants to know of each key."""

    names: tuple[str, ...] | None
    """None or empty is all of them."""
    synonyms: bool
    documentation: bool

    def includes(self, name: str) -> bool:
        return not self.names or name in self.names


def describe_topic(
    config: NodeConfig, configs: ConfigsImage, topic: str, wanted: Wanted
) -> list[DescribeConfigsResourceResult]:
    """Every key of a topic, whether set for it or not."""
    overrides = configs.of(TOPIC_RESOURCE, topic)
    in_force = log_config(overrides, config.log_defaults)
    sources = broker_sources(config, configs)
    described = []
    for name, key in _public(TOPIC_CONFIGS, overrides, wanted):
        given = key.parse(overrides[name]) if name in overrides else key.default
        text = value_text(getattr(in_force, name.replace(".", "_"), given))
        synonyms = [_synonym(name, text, ConfigSource.TOPIC)] if name in overrides else []
        if key.synonyms:
            synonyms += _broker_synonyms(key.synonyms[0], sources, fallback=key)
        described.append(_entry(key, text, synonyms, wanted))
    return described


def describe_broker(config: NodeConfig, configs: ConfigsImage, wanted: Wanted) -> list[DescribeConfigsResourceResult]:
    """Every key that this broker honours, and what else was set."""
    sources = broker_sources(config, configs)
    given = {name: text for source, texts in reversed(sources) for name, text in texts.items()}
    described = []
    for name, key in _public(BROKER_KEYS, given, wanted):
        if name in NODE_CONFIGS:
            text = value_text(config.values[name])
        elif name in given:
            text = given[name]
        else:
            continue
        described.append(_entry(key, text, _broker_synonyms(name, sources), wanted))
    for name in given:
        if name not in BROKER_KEYS and wanted.includes(name):
            # What nobody knows might be a password: Kafka never shows it.
            synonyms = [
                _synonym(each.name, None, ConfigSource(each.source)) for each in _broker_synonyms(name, sources)
            ]
            described.append(_unknown(name, synonyms, wanted))
    return described


def describe_all_brokers(configs: Mapping[str, str], wanted: Wanted) -> list[DescribeConfigsResourceResult]:
    """What was set for all brokers, and nothing else."""
    described = []
    for name, text in configs.items():
        key = BROKER_KEYS.get(name)
        if not wanted.includes(name):
            continue
        if key is None:
            described.append(_unknown(name, [_synonym(name, None, ConfigSource.ALL_BROKERS)], wanted))
        else:
            described.append(_entry(key, text, [_synonym(name, text, ConfigSource.ALL_BROKERS)], wanted))
    return described


def describe_group(
    config: NodeConfig, configs: ConfigsImage, group: str, wanted: Wanted
) -> list[DescribeConfigsResourceResult]:
    """Every key of a group, whether set for it or not."""
    overrides = configs.of(GROUP_RESOURCE, group)
    sources = broker_sources(config, configs)
    described = []
    for name, key in _public(GROUP_CONFIGS, overrides, wanted):
        synonyms = _broker_synonyms(key.synonyms[0], sources, fallback=key)
        text = synonyms[0].value
        if name in overrides:
            text = overrides[name]
            synonyms.insert(0, _synonym(name, text, ConfigSource.GROUP))
        described.append(_entry(key, text, synonyms, wanted))
    return described


def describe_loggers(wanted: Wanted) -> list[DescribeConfigsResourceResult]:
    return [
        DescribeConfigsResourceResult(
            name=name,
            value=level,
            read_only=False,
            config_source=ConfigSource.LOGGER,
            is_sensitive=False,
            synonyms=[],
        )
        for name, level in logger_levels().items()
        if wanted.includes(name)
    ]


def _public(table: ConfigTable, given: Mapping[str, str], wanted: Wanted) -> Iterable[tuple[str, ConfigKey]]:
    """Internal keys show only where they were set."""
    for name, key in table.items():
        if (not key.internal or name in given) and wanted.includes(name):
            yield name, key


def _broker_synonyms(name: str, sources: Sources, fallback: ConfigKey | None = None) -> list[DescribeConfigsSynonym]:
    """All that was said about a broker's key, the strongest first.

    As in Kafka, what a key of another unit says shows only behind something that was said about this very one.
    `fallback` has the default of a key that this node does not have.
    """
    names = _SYNONYMS.get(name, (name,))
    found = [_synonym(each, texts[each], source) for source, texts in sources for each in names if each in texts]
    while found and found[0].name != name:
        del found[0]
    if not found and fallback is not None and name not in NODE_CONFIGS:
        found.append(_synonym(name, value_text(fallback.default), ConfigSource.DEFAULT))
    return found


def _synonym(name: str, text: str | None, source: ConfigSource) -> DescribeConfigsSynonym:
    return DescribeConfigsSynonym(name=name, value=text, source=source)


def _entry(
    key: ConfigKey, text: str | None, synonyms: list[DescribeConfigsSynonym], wanted: Wanted
) -> DescribeConfigsResourceResult:
    sensitive = key.type is ConfigType.PASSWORD
    return DescribeConfigsResourceResult(
        name=key.name,
        value=None if sensitive else text,
        read_only=key.dynamic is Dynamic.READ_ONLY,
        config_source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        is_sensitive=sensitive,
        synonyms=synonyms if wanted.synonyms else [],
        config_type=key.type,
        documentation=key.doc if wanted.documentation else None,
    )


def _unknown(name: str, synonyms: list[DescribeConfigsSynonym], wanted: Wanted) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name,
        value=None,
        read_only=True,
        config_source=synonyms[0].source,
        is_sensitive=True,
        synonyms=synonyms if wanted.synonyms else [],
        config_type=_UNKNOWN_TYPE,
        documentation=None,
    )
