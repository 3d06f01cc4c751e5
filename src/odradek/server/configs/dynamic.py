"""A broker's configuration while it runs: the file, what was set for all brokers, and what was set for this one.

`NodeConfig` is one object that everybody holds, so a change is put into it: `apply_broker_configs` is the only place
that does. What a key may be set to at run time is checked before anything is on record.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import IntEnum
from typing import TypeAlias

from odradek.configdef import (
    LONG_MAX,
    ConfigError,
    ConfigKey,
    ConfigTable,
    ConfigType,
    ConfigValue,
    Dynamic,
    Range,
    unknown_key,
    value_text,
)
from odradek.metadata.image.configs import ALL_BROKERS, BROKER_RESOURCE, ConfigsImage
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.server.configs.node_config import NodeConfig, check_cordoned, check_logs
from odradek.server.configs.settings import NODE_CONFIGS
from odradek.server.configs.unsupported import NO_EFFECT
from odradek.storage.config import broker_log_defaults

log = logging.getLogger(__name__)


class ConfigSource(IntEnum):
    """Where a value comes from, numbered as DescribeConfigs and CreateTopics answer it."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    FILE = 4
    DEFAULT = 5
    LOGGER = 6
    GROUP = 8


Sources: TypeAlias = list[tuple[ConfigSource, Mapping[str, str]]]
"""Texts by key, the strongest source first."""

_WITHOUT_EFFECT = {
    ConfigType.INT: """background.threads group.consumer.assignment.interval.ms
        group.coordinator.cached.buffer.max.bytes group.share.assignment.interval.ms
        group.streams.assignment.interval.ms
        max.connection.creation.rate max.connections.per.ip num.io.threads num.network.threads
        num.recovery.threads.per.data.dir num.replica.fetchers share.coordinator.cached.buffer.max.bytes""",
    ConfigType.LONG: """log.local.retention.bytes
        log.local.retention.ms replica.alter.log.dirs.io.max.bytes.per.second""",
    ConfigType.STRING: "max.connections.per.ip.overrides",
    ConfigType.LIST: "metric.reporters",
    ConfigType.BOOLEAN: "unclean.leader.election.enable",
}

ACCEPTED_WITHOUT_EFFECT = ConfigTable(
    ConfigKey(name, kind, None, "Kept on record; this node does not act on it.", dynamic=Dynamic.CLUSTER_WIDE)
    for kind, names in _WITHOUT_EFFECT.items()
    for name in names.split()
    if name not in NODE_CONFIGS
)
"""What Kafka lets a running broker change and this one does not act on: kept on record, with a warning in the log."""

CLEANER_THREADS = "log.cleaner.threads"
CORDONED = "cordoned.log.dirs"
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"

RUN_TIME_KEYS = ConfigTable(
    ConfigKey(name, ConfigType.LONG, LONG_MAX, doc, Range(0), dynamic=Dynamic.PER_BROKER)
    for name, doc in (
        (LEADER_RATE, "Bytes a second that a leader sends of the topics' `leader.replication.throttled.replicas`."),
        (
            FOLLOWER_RATE,
            "Bytes a second that a follower takes of the topics' `follower.replication.throttled.replicas`.",
        ),
    )
)
"""What a broker honours if it is set at run time, and not in its file; described only where it is set, as in Kafka."""

BROKER_KEYS = ConfigTable((*NODE_CONFIGS.values(), *RUN_TIME_KEYS.values(), *ACCEPTED_WITHOUT_EFFECT.values()))


def broker_sources(config: NodeConfig, configs: ConfigsImage) -> Sources:
    """All that was ever said about this broker's keys."""
    return [
        (ConfigSource.BROKER, configs.of(BROKER_RESOURCE, str(config.node_id))),
        (ConfigSource.ALL_BROKERS, configs.of(BROKER_RESOURCE, ALL_BROKERS)),
        (ConfigSource.FILE, config.given),
        (ConfigSource.DEFAULT, _DEFAULTS),
    ]


def apply_broker_configs(config: NodeConfig, configs: ConfigsImage) -> None:
    """Make the configuration that everybody reads what was set at run time, else what the file says, else the default.

    A value on record that is not valid (another release may have written it) counts as not set.
    """
    own, everyones = configs.of(BROKER_RESOURCE, str(config.node_id)), configs.of(BROKER_RESOURCE, ALL_BROKERS)
    for name, key in NODE_CONFIGS.items():
        if key.dynamic is Dynamic.READ_ONLY:
            continue
        given = key.parse(config.given[name]) if name in config.given else key.default
        for texts in (everyones, own):
            if name in texts:
                try:
                    given = key.parse(texts[name])
                except ConfigError as wrong:
                    log.error("%s on record is passed over: %s", name, wrong)
        config.values[name] = given
        config.__dict__[name.replace(".", "_")] = given
    config.log_defaults = broker_log_defaults(config.values)


def check_broker_configs(config: NodeConfig, name: str, configs: Mapping[str, str]) -> None:
    """KafkaError unless the broker of that name, or all of them where it is empty, may be given these at run time."""
    if name:
        _broker_id(name)
    fixed = [key for key in configs if _is_fixed(key)]
    if fixed:
        # Kafka says INVALID_REQUEST wherever a broker refuses a value (KAFKA-13609).
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(sorted(fixed))}]"
        )
    values = dict(config.values)
    for key_name, text in configs.items():
        key = BROKER_KEYS.get(key_name)
        if key is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, unknown_key("broker", key_name, BROKER_KEYS))
        try:
            values[key_name] = key.parse(text)
            check_logs(values)
            _check_cleaner_threads(config.log_cleaner_threads, values[CLEANER_THREADS])
            if key_name == CORDONED and name:
                check_cordoned(config, values[key_name])
        except ConfigError as wrong:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(wrong)) from wrong


def warn_of_what_has_no_effect(configs: Mapping[str, str]) -> None:
    for name in configs:
        if name in ACCEPTED_WITHOUT_EFFECT:
            log.warning("%s is on record, but has no effect: %s.", name, NO_EFFECT.get(name, "there is no such thing"))


def check_is_this_broker(config: NodeConfig, name: str) -> None:
    """A broker's own settings are asked of that broker."""
    if _broker_id(name) != config.node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {config.node_id}, but received {name}"
        )


def _broker_id(name: str) -> int:
    try:
        return int(name)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None


def _check_cleaner_threads(current: int, wanted: ConfigValue) -> None:
    """As Kafka does it: not by more than a half or to more than twice as many at a time."""
    assert isinstance(wanted, int)
    if wanted == current:
        return
    if wanted < 1:
        raise ConfigError("Log cleaner threads should be at least 1", CLEANER_THREADS)
    if wanted < current // 2:
        raise ConfigError(
            f"Log cleaner threads cannot be reduced to less than half the current value {current}", CLEANER_THREADS
        )
    if wanted > current * 2:
        raise ConfigError(
            f"Log cleaner threads cannot be increased to more than double the current value {current}", CLEANER_THREADS
        )


def _is_fixed(name: str) -> bool:
    """Whether it is a key of Kafka's that a running broker cannot change."""
    key = BROKER_KEYS.get(name)
    return key.dynamic is Dynamic.READ_ONLY if key is not None else name in NO_EFFECT


_DEFAULTS = {name: text for name, key in NODE_CONFIGS.items() if (text := value_text(key.default)) is not None}
