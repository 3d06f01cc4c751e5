"""The settings of one log: a topic's configuration as the storage room reads it, with Kafka's defaults.

`TOPIC_CONFIGS` declares every topic-level key of Kafka 4.3; `log_config` turns a topic's overrides into a `LogConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.configdef import (
    LONG_MAX as LONG_MAX,
)
from odradek.configdef import (
    Choices,
    ConfigError,
    ConfigKey,
    ConfigTable,
    ConfigType,
    ConfigValue,
    Dynamic,
    Importance,
    Range,
    RangeOr,
    ThrottledReplicas,
    Validator,
    unknown_key,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.values import replace, value

MILLIS_PER_MINUTE = 60_000
MILLIS_PER_HOUR = 3_600_000
VALIDATE_RECORDS = "odradek.validate.records"


@value
class LogConfig:
    """Field names are Kafka's topic-level keys with underscores."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False
    validate_records: bool = True
    """Whether clients' batches are looked into: `odradek.validate.records`, which is a broker's, and not Kafka's."""

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """After how long a segment is closed: only then can it be compacted, which may be due sooner."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacted else self.segment_ms


KAFKA_DEFAULTS = LogConfig()


def log_config(topic_overrides: Mapping[str, str], broker_defaults: LogConfig = KAFKA_DEFAULTS) -> LogConfig:
    """The settings of a topic's logs; overrides that are not valid raise KafkaError(INVALID_CONFIG)."""
    return _with_overrides(broker_defaults, validate_overrides(topic_overrides, broker_defaults))


def validate_overrides(
    topic_overrides: Mapping[str, str], broker_defaults: LogConfig = KAFKA_DEFAULTS
) -> dict[str, ConfigValue]:
    """The overrides as values; what a topic may not have raises KafkaError(INVALID_CONFIG) in Kafka's words."""
    parsed: dict[str, ConfigValue] = {}
    for name, text in topic_overrides.items():
        key = TOPIC_CONFIGS.get(name)
        if key is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, unknown_key("topic", name, TOPIC_CONFIGS))
        try:
            parsed[name] = key.parse(text)
        except ConfigError as wrong:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(wrong)) from wrong
    if parsed.get("remote.storage.enable"):
        message = (
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    config = _with_overrides(broker_defaults, parsed)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        message = (
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        )
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    return parsed


def broker_log_defaults(broker_values: Mapping[str, ConfigValue]) -> LogConfig:
    """What a broker's own `log.*` keys, already parsed, make of a topic without overrides.

    Of several keys for one setting the first of the key's synonyms that has a value counts, whatever its unit.
    """
    changes: dict[str, Any] = {}
    for key in TOPIC_CONFIGS.values():
        for synonym in key.synonyms:
            given = broker_values.get(synonym)
            if given is not None:
                unit_ms = _unit_ms(synonym)
                changes[_field(key.name)] = given if unit_ms == 1 or not isinstance(given, int) else given * unit_ms
                break
    changes["validate_records"] = broker_values.get(VALIDATE_RECORDS) != "headers"
    changes["retention_ms"] = max(
        changes.get("retention_ms", KAFKA_DEFAULTS.retention_ms), -1
    )  # -1 hours is for ever, too
    return _replace(KAFKA_DEFAULTS, changes)


def _with_overrides(defaults: LogConfig, parsed: Mapping[str, ConfigValue]) -> LogConfig:
    if not parsed:
        return defaults
    changes: dict[str, Any] = {_field(name): given for name, given in parsed.items()}
    small_segments = changes.pop("internal_segment_bytes", None)
    if small_segments is not None:
        changes["segment_bytes"] = small_segments
    return _replace(defaults, changes)


def _replace(config: LogConfig, changes: dict[str, Any]) -> LogConfig:
    """Keys without a field (tiered storage, throttles) are valid and stay with the topic, but no log reads them."""
    fields = {name: given for name, given in changes.items() if name in _FIELDS}
    return replace(config, **fields)


def _field(name: str) -> str:
    return name.replace(".", "_")


def _unit_ms(synonym: str) -> int:
    if synonym.endswith(".hours"):
        return MILLIS_PER_HOUR
    return MILLIS_PER_MINUTE if synonym.endswith(".minutes") else 1


_FIELDS = frozenset(LogConfig.__slots__)  # type: ignore[attr-defined]


# --- the table --------------------------------------------------------------------------------------------------------


def _key(
    name: str,
    kind: ConfigType,
    doc: str,
    *synonyms: str,
    valid: Validator | None = None,
    default: ConfigValue = None,
    internal: bool = False,
) -> ConfigKey:
    if default is None and _field(name) in _FIELDS:
        default = getattr(KAFKA_DEFAULTS, _field(name))
    return ConfigKey(
        name, kind, default, doc, valid, Importance.MEDIUM, Dynamic.CLUSTER_WIDE, internal=internal, synonyms=synonyms
    )


_LONG, _INT, _BOOLEAN = ConfigType.LONG, ConfigType.INT, ConfigType.BOOLEAN
_STRING, _LIST, _DOUBLE = ConfigType.STRING, ConfigType.LIST, ConfigType.DOUBLE

TOPIC_CONFIGS = ConfigTable(
    [
        _key(
            "cleanup.policy",
            _LIST,
            "What happens to old records: `delete` drops segments by age and size, `compact` keeps each key's last.",
            "log.cleanup.policy",
            valid=Choices(("compact", "delete")),
        ),
        _key(
            "compression.gzip.level",
            _INT,
            "The level used where the broker itself compresses with gzip.",
            "compression.gzip.level",
            valid=RangeOr(1, 9, -1),
        ),
        _key(
            "compression.lz4.level",
            _INT,
            "The level used where the broker itself compresses with lz4.",
            "compression.lz4.level",
            valid=Range(1, 17),
        ),
        _key(
            "compression.type",
            _STRING,
            "The codec that batches are stored with; `producer` keeps what the producer chose, without looking inside.",
            "compression.type",
            valid=Choices(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        ),
        _key(
            "compression.zstd.level",
            _INT,
            "The level used where the broker itself compresses with zstd.",
            "compression.zstd.level",
            valid=Range(-131072, 22),
        ),
        _key(
            "delete.retention.ms",
            _LONG,
            "How long a tombstone stays in a compacted topic, so that a reader from the start has time to see it.",
            "log.cleaner.delete.retention.ms",
            valid=Range(0),
        ),
        _key(
            "file.delete.delay.ms",
            _LONG,
            "How long the files of a deleted segment stay on disk under the name `.deleted`.",
            "log.segment.delete.delay.ms",
            valid=Range(0),
        ),
        _key(
            "flush.messages",
            _LONG,
            "After how many records a log is forced to disk; by default that is left to the operating system.",
            "log.flush.interval.messages",
            valid=Range(1),
        ),
        _key(
            "flush.ms",
            _LONG,
            "After how long a log with new records is forced to disk; by default that is left to the operating system.",
            "log.flush.interval.ms",
            "log.flush.scheduler.interval.ms",
            valid=Range(0),
        ),
        _key(
            "follower.replication.throttled.replicas",
            _LIST,
            "Replicas whose catching up is throttled on the follower's side.",
            valid=ThrottledReplicas(),
            default=(),
        ),
        _key(
            "index.interval.bytes",
            _INT,
            "An entry goes into the offset index for about every so many bytes of log.",
            "log.index.interval.bytes",
            valid=Range(0),
        ),
        _key(
            "internal.segment.bytes",
            _INT,
            "Overrides `segment.bytes` without its lower bound, for tests that want to see segments roll.",
            internal=True,
        ),
        _key(
            "leader.replication.throttled.replicas",
            _LIST,
            "Replicas whose catching up is throttled on the leader's side.",
            valid=ThrottledReplicas(),
            default=(),
        ),
        _key(
            "local.retention.bytes",
            _LONG,
            "With tiered storage: how many bytes stay on the broker's disk; -2 means `retention.bytes`.",
            "log.local.retention.bytes",
            valid=Range(-2),
            default=-2,
        ),
        _key(
            "local.retention.ms",
            _LONG,
            "With tiered storage: how long segments stay on the broker's disk; -2 means `retention.ms`.",
            "log.local.retention.ms",
            valid=Range(-2),
            default=-2,
        ),
        _key(
            "max.compaction.lag.ms",
            _LONG,
            "After how long a record of a compacted topic must have been looked at by the cleaner.",
            "log.cleaner.max.compaction.lag.ms",
            valid=Range(1),
        ),
        _key(
            "max.message.bytes",
            _INT,
            "The largest record batch accepted, after compression.",
            "message.max.bytes",
            valid=Range(0),
        ),
        _key(
            "message.timestamp.after.max.ms",
            _LONG,
            "How far a record's timestamp may lie ahead of the broker's clock.",
            "log.message.timestamp.after.max.ms",
            valid=Range(0),
        ),
        _key(
            "message.timestamp.before.max.ms",
            _LONG,
            "How far a record's timestamp may lie behind the broker's clock.",
            "log.message.timestamp.before.max.ms",
            valid=Range(0),
        ),
        _key(
            "message.timestamp.type",
            _STRING,
            "Whether a record carries the time the producer gave it or the time it was appended.",
            "log.message.timestamp.type",
            valid=Choices(("CreateTime", "LogAppendTime")),
        ),
        _key(
            "min.cleanable.dirty.ratio",
            _DOUBLE,
            "Which share of a compacted log must be new before cleaning it is worth the work.",
            "log.cleaner.min.cleanable.ratio",
            valid=Range(0, 1),
        ),
        _key(
            "min.compaction.lag.ms",
            _LONG,
            "How long a record of a compacted topic stays, even when a newer one has its key.",
            "log.cleaner.min.compaction.lag.ms",
            valid=Range(0),
        ),
        _key(
            "min.insync.replicas",
            _INT,
            "How many replicas must be in sync for a write with acks=all to be accepted.",
            "min.insync.replicas",
            valid=Range(1),
        ),
        _key(
            "preallocate",
            _BOOLEAN,
            "Whether a new segment file gets its full size at once.",
            "log.preallocate",
        ),
        _key(
            "remote.log.copy.disable",
            _BOOLEAN,
            "With tiered storage: no more segments are copied away.",
            default=False,
        ),
        _key(
            "remote.log.delete.on.disable",
            _BOOLEAN,
            "With tiered storage: turning it off for the topic also deletes what was copied away.",
            default=False,
        ),
        _key(
            "remote.storage.enable",
            _BOOLEAN,
            "Whether the topic uses tiered storage, which this broker does not offer.",
            default=False,
        ),
        _key(
            "retention.bytes",
            _LONG,
            "How large a partition may grow before its oldest segments are deleted; -1 is without limit.",
            "log.retention.bytes",
        ),
        _key(
            "retention.ms",
            _LONG,
            "How long records are kept before their segments are deleted; -1 is for ever.",
            "log.retention.ms",
            "log.retention.minutes",
            "log.retention.hours",
            valid=Range(-1),
        ),
        _key(
            "segment.bytes",
            _INT,
            "The size at which a segment is closed and the next one begins.",
            "log.segment.bytes",
            valid=Range(1 << 20),
        ),
        _key(
            "segment.index.bytes",
            _INT,
            "How large the index of a segment may grow; the segment is closed when it is full.",
            "log.index.size.max.bytes",
            valid=Range(4),
        ),
        _key(
            "segment.jitter.ms",
            _LONG,
            "Up to how much is taken off `segment.ms` at random, so that not all logs roll at once.",
            "log.roll.jitter.ms",
            "log.roll.jitter.hours",
            valid=Range(0),
        ),
        _key(
            "segment.ms",
            _LONG,
            "The age at which a segment is closed even when it is not full, so that retention can have it.",
            "log.roll.ms",
            "log.roll.hours",
            valid=Range(1),
        ),
        _key(
            "unclean.leader.election.enable",
            _BOOLEAN,
            "Whether a replica that is not in sync may become leader, at the price of losing records.",
            "unclean.leader.election.enable",
        ),
    ]
)
