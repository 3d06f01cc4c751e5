"""Settings of clients under Kafka's own property names: one table for what all share, one for each kind of client.

A name that nobody knows is refused with the nearest known one; a setting of Kafka's that cannot be honoured here is
refused too, so that nobody believes in encryption or interceptors that are not there. Settings about
serializers and metrics of the Java client mean nothing here and are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from odradek.configdef import (
    INT_MAX,
    Choices,
    ConfigError,
    ConfigKey,
    ConfigTable,
    ConfigType,
    ConfigValue,
    NotEmpty,
    Range,
    did_you_mean,
    value_text,
)

Given: TypeAlias = Mapping[str, ConfigValue]
"""What a user hands in: texts as in a properties file, or Python's numbers, booleans and tuples."""

_STRING, _INT, _LONG = ConfigType.STRING, ConfigType.INT, ConfigType.LONG
_BOOLEAN, _LIST = ConfigType.BOOLEAN, ConfigType.LIST
_FROM_0 = Range(0)
_FROM_1 = Range(1)
_FROM_MINUS_1 = Range(-1)

COMMON = (
    ConfigKey("bootstrap.servers", _LIST, (), "Addresses, host:port, to find the cluster by.", NotEmpty()),
    ConfigKey("client.id", _STRING, "odradek", "The name this client goes by in the broker's logs and quotas."),
    ConfigKey("security.protocol", _STRING, "PLAINTEXT", "Only PLAINTEXT is offered."),
    ConfigKey("request.timeout.ms", _INT, 30_000, "How long an answer may take.", _FROM_0),
    ConfigKey("retry.backoff.ms", _LONG, 100, "The wait before the first retry; it doubles.", _FROM_0),
    ConfigKey("retry.backoff.max.ms", _LONG, 1_000, "The longest wait between retries.", _FROM_0),
    ConfigKey("reconnect.backoff.ms", _LONG, 50, "The wait before the first new connection; it doubles.", _FROM_0),
    ConfigKey("reconnect.backoff.max.ms", _LONG, 1_000, "The longest wait between connections.", _FROM_0),
    ConfigKey("socket.connection.setup.timeout.ms", _LONG, 10_000, "How long connecting may take.", _FROM_1),
    ConfigKey("metadata.max.age.ms", _LONG, 300_000, "How long metadata is believed without asking.", _FROM_0),
)

_API_TIMEOUT = ConfigKey("default.api.timeout.ms", _INT, 60_000, "How long a call may take, with retries.", _FROM_0)

ADMIN_TABLE = ConfigTable((*COMMON, _API_TIMEOUT))

PRODUCER_TABLE = ConfigTable(
    (
        *COMMON,
        ConfigKey(
            "acks", _STRING, "all", "Who must have a record before it counts as sent.", Choices(("all", "-1", "0", "1"))
        ),
        ConfigKey("batch.size", _INT, 16_384, "Bytes of records that make a batch full.", _FROM_0),
        ConfigKey("linger.ms", _LONG, 5, "How long a batch that is not full waits for more records.", _FROM_0),
        ConfigKey("buffer.memory", _LONG, 33_554_432, "Bytes of records that may wait to be delivered.", _FROM_0),
        ConfigKey("max.block.ms", _LONG, 60_000, "How long a send may wait for metadata and buffer memory.", _FROM_0),
        ConfigKey("max.request.size", _INT, 1_048_576, "The largest record and the largest request.", _FROM_0),
        ConfigKey("max.in.flight.requests.per.connection", _INT, 5, "Unanswered requests to a broker.", _FROM_1),
        ConfigKey("retries", _INT, INT_MAX, "How often a batch is sent again.", Range(0, INT_MAX)),
        ConfigKey("delivery.timeout.ms", _INT, 120_000, "How long a record may take from send to the end.", _FROM_0),
        ConfigKey("enable.idempotence", _BOOLEAN, True, "Whether retries may neither double nor reorder records."),
        ConfigKey("transactional.id", _STRING, None, "The name under which transactions outlive restarts."),
        ConfigKey("transaction.timeout.ms", _INT, 60_000, "How long a transaction may stay open.", _FROM_0),
        ConfigKey(
            "compression.type",
            _STRING,
            "none",
            "How batches are compressed.",
            Choices(("none", "gzip", "snappy", "lz4", "zstd")),
        ),
        ConfigKey("compression.gzip.level", _INT, -1, "How hard gzip tries.", Range(-1, 9)),
        ConfigKey("compression.lz4.level", _INT, 9, "How hard lz4 tries.", Range(1, 17)),
        ConfigKey("compression.zstd.level", _INT, 3, "How hard zstd tries.", Range(-131_072, 22)),
        ConfigKey(
            "partitioner.class",
            _STRING,
            "",
            "`round-robin` (or Java's RoundRobinPartitioner), or nothing: by key, and sticky without one.",
            Choices(
                ("", "round-robin", "RoundRobinPartitioner", "org.apache.kafka.clients.producer.RoundRobinPartitioner")
            ),
        ),
        ConfigKey("partitioner.ignore.keys", _BOOLEAN, False, "Whether keyed records are spread like unkeyed ones."),
    )
)

CONSUMER_TABLE = ConfigTable(
    (
        *COMMON,
        _API_TIMEOUT,
        ConfigKey("group.id", _STRING, None, "The group this consumer is a member of or commits offsets for."),
        ConfigKey("group.instance.id", _STRING, None, "A name that outlives restarts: static membership."),
        ConfigKey("group.protocol", _STRING, "classic", "Only the classic protocol is spoken.", Choices(("classic",))),
        ConfigKey(
            "partition.assignment.strategy",
            _LIST,
            ("range", "cooperative-sticky"),
            "Assignors by name or by the Java class, the preferred one first.",
            NotEmpty(),
        ),
        ConfigKey("session.timeout.ms", _INT, 45_000, "Silence after which the group drops the member.", _FROM_0),
        ConfigKey("heartbeat.interval.ms", _INT, 3_000, "How often the member shows that it lives.", _FROM_0),
        ConfigKey("max.poll.interval.ms", _INT, 300_000, "The longest time between two polls.", _FROM_1),
        ConfigKey("max.poll.records", _INT, 500, "Records that one poll returns at most.", _FROM_1),
        ConfigKey("enable.auto.commit", _BOOLEAN, True, "Whether positions are committed now and then."),
        ConfigKey("auto.commit.interval.ms", _INT, 5_000, "How often they are.", _FROM_0),
        ConfigKey(
            "auto.offset.reset",
            _STRING,
            "latest",
            "Where to start without a committed offset.",
            Choices(("earliest", "latest", "none")),
        ),
        ConfigKey("fetch.min.bytes", _INT, 1, "Bytes a broker waits for before it answers a fetch.", _FROM_0),
        ConfigKey("fetch.max.bytes", _INT, 52_428_800, "Bytes of one answer.", _FROM_0),
        ConfigKey("fetch.max.wait.ms", _INT, 500, "How long a broker waits for them.", _FROM_0),
        ConfigKey("max.partition.fetch.bytes", _INT, 1_048_576, "Bytes of one partition in an answer.", _FROM_0),
        ConfigKey("check.crcs", _BOOLEAN, True, "Whether checksums of fetched batches are checked."),
        ConfigKey(
            "isolation.level",
            _STRING,
            "read_uncommitted",
            "Whether records of open and aborted transactions are seen.",
            Choices(("read_uncommitted", "read_committed")),
        ),
        ConfigKey("allow.auto.create.topics", _BOOLEAN, True, "Whether subscribing may create a topic."),
        ConfigKey("exclude.internal.topics", _BOOLEAN, True, "Whether patterns pass over internal topics."),
        ConfigKey("client.rack", _STRING, "", "Where this client is, for reading from the nearest replica."),
    )
)

IGNORED = (
    "key.serializer",
    "value.serializer",
    "key.deserializer",
    "value.deserializer",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "enable.metrics.push",
    "auto.include.jmx.reporter",
    "send.buffer.bytes",
    "receive.buffer.bytes",
    "connections.max.idle.ms",
    "client.dns.lookup",
    "metadata.max.idle.ms",
)
REFUSED = {
    "interceptor.classes": "there are no interceptors",
    "group.remote.assignor": "only the classic group protocol is spoken",
}


class Settings:
    """What was given, checked against a table, and the table's defaults for the rest."""

    def __init__(self, table: ConfigTable, given: Given) -> None:
        self._values: dict[str, ConfigValue] = {name: key.default for name, key in table.items()}
        self.given: dict[str, ConfigValue] = {}
        for name, setting in given.items():
            if name in IGNORED:
                continue
            if name in table:
                # A setting that is None is one that was not given: callers hand through what they may not have.
                text = value_text(setting)
                if text is not None:
                    self.given[name] = self._values[name] = table[name].parse(text)
            else:
                raise ConfigError(_refusal(name, table), name)
        protocol = self._values["security.protocol"]
        if protocol != "PLAINTEXT":
            raise ConfigError(
                f"security.protocol={protocol} is not offered: this client speaks PLAINTEXT only", "security.protocol"
            )
        if not self._values["bootstrap.servers"]:
            raise ConfigError("bootstrap.servers is missing: give at least one host:port", "bootstrap.servers")

    def number(self, name: str) -> int:
        held = self._values[name]
        assert isinstance(held, int)
        return held

    def text(self, name: str) -> str:
        held = self._values[name]
        assert isinstance(held, str)
        return held

    def optional_text(self, name: str) -> str | None:
        held = self._values[name]
        assert held is None or isinstance(held, str)
        return held

    def flag(self, name: str) -> bool:
        held = self._values[name]
        assert isinstance(held, bool)
        return held

    def words(self, name: str) -> tuple[str, ...]:
        held = self._values[name]
        assert isinstance(held, tuple)
        return held


def _refusal(name: str, table: ConfigTable) -> str:
    if name.startswith(("ssl.", "sasl.")):
        return f"{name} cannot be honoured: this client speaks PLAINTEXT only"
    if name in REFUSED:
        return f"{name} cannot be honoured: {REFUSED[name]}"
    others = (ADMIN_TABLE, PRODUCER_TABLE, CONSUMER_TABLE)
    if any(name in other for other in others):
        return f"{name} is a setting of another kind of client"
    return f"Unknown client setting {name}.{did_you_mean(name, table)}"


def parse_address(text: str) -> tuple[str, int]:
    """`host:port`, with brackets around an IPv6 address."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ConfigError(f"bootstrap.servers: {text!r} is not host:port", "bootstrap.servers")
    return host.removeprefix("[").removesuffix("]"), int(port)
