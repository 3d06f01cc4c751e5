"""What may be set for one group: resources of type GROUP (KIP-848), and the broker's keys they fall back to."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.configdef import ConfigError, ConfigKey, ConfigTable, ConfigType, Dynamic, Range, unknown_key
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.server.configs.node_config import NodeConfig

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"


def _key(name: str, default: int, doc: str, low: int) -> ConfigKey:
    return ConfigKey(
        name, ConfigType.INT, default, doc, Range(low), dynamic=Dynamic.CLUSTER_WIDE, synonyms=(f"group.{name}",)
    )


GROUP_CONFIGS = ConfigTable(
    [
        _key(
            "consumer.assignment.interval.ms",
            1_000,
            "How long a new assignment waits for further changes of the group.",
            0,
        ),
        _key(HEARTBEAT_INTERVAL, 5_000, "How often members say that they are alive.", 1),
        _key(SESSION_TIMEOUT, 45_000, "After how long a silent member is taken for gone.", 1),
    ]
)

_BOUNDS = {
    "consumer.assignment.interval.ms": (0, 15_000),
    HEARTBEAT_INTERVAL: (5_000, 15_000),
    SESSION_TIMEOUT: (45_000, 60_000),
}
"""The defaults of group.consumer.min.… and group.consumer.max.…, which say what a group may choose."""


def check_group_configs(config: NodeConfig, configs: Mapping[str, str]) -> None:
    """KafkaError INVALID_CONFIG unless a group may have these, and for the rest what the broker says."""
    values: dict[str, int] = {}
    for name, text in configs.items():
        key = GROUP_CONFIGS.get(name)
        if key is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, unknown_key("group", name, GROUP_CONFIGS))
        try:
            given = key.parse(text)
        except ConfigError as wrong:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(wrong)) from wrong
        assert isinstance(given, int)
        low, high = _BOUNDS[name]
        if given < low:
            raise _refused(f"{name} must be greater than or equal to group.{_bound(name, 'min')}")
        if given > high:
            raise _refused(f"{name} must be less than or equal to group.{_bound(name, 'max')}")
        values[name] = given
    session = values.get(SESSION_TIMEOUT, config.group_consumer_session_timeout_ms)
    heartbeat = values.get(HEARTBEAT_INTERVAL, config.group_consumer_heartbeat_interval_ms)
    if session <= heartbeat:
        raise _refused(f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")


def _bound(name: str, which: str) -> str:
    return name.replace("consumer.", f"consumer.{which}.", 1)


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, why)
