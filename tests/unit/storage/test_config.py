"""Topic settings: Kafka's defaults, overrides and refusals."""

from __future__ import annotations

import pytest

from odradek.configdef import ConfigValue
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.config import KAFKA_DEFAULTS, TOPIC_CONFIGS, LogConfig, broker_log_defaults, log_config


def test_without_overrides_a_topic_has_its_brokers_settings() -> None:
    defaults = LogConfig(retention_ms=5)
    assert log_config({}, defaults) is defaults


def test_overrides_change_what_they_name_and_nothing_else() -> None:
    config = log_config({"cleanup.policy": "compact, delete", "retention.ms": "-1", "min.cleanable.dirty.ratio": "0.1"})
    assert config.cleanup_policy == ("compact", "delete")
    assert config.compacted
    assert config.retention_ms == -1
    assert config.min_cleanable_dirty_ratio == 0.1
    assert config.segment_bytes == KAFKA_DEFAULTS.segment_bytes


def test_keys_that_no_log_reads_are_accepted() -> None:
    overrides = {
        "leader.replication.throttled.replicas": "*",
        "local.retention.ms": "5",
        "remote.storage.enable": "false",
    }
    assert log_config(overrides) == KAFKA_DEFAULTS


def test_small_segments_for_tests() -> None:
    assert log_config({"internal.segment.bytes": "500"}).segment_bytes == 500


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"retention.sm": "1"}, "Unknown topic config name: retention.sm. Did you mean retention.ms?"),
        ({"foo.bar": "1"}, "Unknown topic config name: foo.bar"),
        (
            {"cleanup.policy": "shred"},
            "Invalid value shred for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        ({"segment.bytes": "10"}, "Invalid value 10 for configuration segment.bytes: Value must be at least 1048576"),
        ({"retention.ms": "-2"}, "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
    ],
)
def test_refusals_are_in_kafkas_words(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(KafkaError) as wrong:
        log_config(overrides)
    assert wrong.value.code is ErrorCode.INVALID_CONFIG
    assert wrong.value.message == message


@pytest.mark.parametrize(
    ("broker", "expected"),
    [
        ({"log.retention.hours": 2}, {"retention_ms": 7_200_000}),
        ({"log.retention.hours": 2, "log.retention.minutes": 3}, {"retention_ms": 180_000}),
        ({"log.retention.minutes": 3, "log.retention.ms": 9}, {"retention_ms": 9}),
        ({"log.retention.hours": -1}, {"retention_ms": -1}),
        ({"log.roll.hours": 1, "log.roll.ms": None}, {"segment_ms": 3_600_000}),
        ({"log.flush.interval.ms": None, "log.flush.scheduler.interval.ms": 7}, {"flush_ms": 7}),
        ({"message.max.bytes": 5, "log.segment.bytes": 1 << 20}, {"max_message_bytes": 5, "segment_bytes": 1 << 20}),
        (
            {"log.preallocate": True, "log.cleanup.policy": ("compact",)},
            {"preallocate": True, "cleanup_policy": ("compact",)},
        ),
        ({"odradek.validate.records": "headers"}, {"validate_records": False}),
        ({"odradek.validate.records": "all"}, {}),
    ],
)
def test_the_brokers_own_keys_are_a_topics_defaults(
    broker: dict[str, ConfigValue], expected: dict[str, object]
) -> None:
    assert broker_log_defaults(broker) == LogConfig(**expected)  # type: ignore[arg-type]


def test_every_field_of_a_log_is_declared_as_a_key() -> None:
    declared = {name.replace(".", "_") for name in TOPIC_CONFIGS}
    only_of_brokers = {"validate_records"}
    assert set(LogConfig.__slots__) - declared == only_of_brokers  # type: ignore[attr-defined]


def test_every_default_is_itself_valid() -> None:
    for key in TOPIC_CONFIGS.values():
        if key.validator is not None:
            assert key.validator.complaint(key.name, key.default) is None
