"""What may be set for one group: resources of type GROUP (KIP-848), and the broker's keys they fall back to."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.configdef import ConfigError, ConfigKey, ConfigTable, ConfigType, Dynamic, Range, did_you_mean
from odradek.protocol.errors import ErrorCode, KafkaError

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


def check_group_configs(configs: Mapping[str, str]) -> None:
    """KafkaError INVALID_CONFIG unless a group may have these."""
    values: dict[str, int] = {}
    for name, text in configs.items():
        key = GROUP_CONFIGS.get(name)
        if key is None:
            hint = did_you_mean(name, GROUP_CONFIGS)
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}" + (hint and "." + hint))
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
    session = values.get(SESSION_TIMEOUT, GROUP_CONFIGS[SESSION_TIMEOUT].default)
    heartbeat = values.get(HEARTBEAT_INTERVAL, GROUP_CONFIGS[HEARTBEAT_INTERVAL].default)
    assert isinstance(session, int)
    assert isinstance(heartbeat, int)
    if session <= heartbeat:
        raise _refused(f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")


def _bound(name: str, which: str) -> str:
    return name.replace("consumer.", f"consumer.{which}.", 1)


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, why)
