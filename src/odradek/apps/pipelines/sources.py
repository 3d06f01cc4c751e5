"""What a pipeline reads: a topic as a stream of records, or a compacted topic as a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from odradek.apps.pipelines import schemas
from odradek.apps.pipelines.schemas import Schema
from odradek.apps.pipelines.transforms.latest import latest_per_key
from odradek.apps.terminal.sentence import Sentence
from odradek.values import value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOMBSTONES = ("dead-letter", "keep")
REFRESHES = ("batch", "start")

READING = {"kafka.fetch.max.wait.ms": "5", "kafka.max.poll.records": "2000"}
"""How Spark's tasks read, unless a source's options say otherwise.

A task reads offsets that are there, and has nothing to wait for. But at the end of a partition Spark's consumer has
already asked for what comes next. Brokers keep such a Fetch for as long as it may wait (Kafka's default: 500 ms) and
answer nothing else on that connection meanwhile, so every task would stand still for that long before it ends.
After every poll Spark also asks for the partition's first and last offset, one after the other: with Kafka's 500
records a poll, these are most of all requests, and 2,000 a poll leave a quarter of them. Still more a poll would have
to be held: an executor keeps what the last poll of every partition brought.
"""


@value
class Topic:
    """A topic, several or all that match a pattern, read as a stream."""

    topics: tuple[str, ...]
    pattern: str | None
    schema: Schema
    key: Schema
    key_required: bool = False
    starting: str = "earliest"
    """`earliest`, `latest`, a moment (ISO 8601), or JSON of offsets: `{"orders": {"0": 12}}`."""
    max_per_trigger: int | None = None
    read_committed: bool = True
    tombstones: str = "dead-letter"
    options: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        return f"topics matching {self.pattern}" if self.pattern else f"topic {', '.join(self.topics)}"

    @property
    def can_refuse(self) -> bool:
        """Whether a record of it can be bad at all."""
        return schemas.can_refuse(self.schema, self.key, key_required=self.key_required)

    def reads(self, name: str) -> bool:
        return re.fullmatch(self.pattern, name) is not None if self.pattern else name in self.topics


@value
class Table:
    """A compacted topic, read as a table: of every key the newest value, and no row where that is null."""

    stream: Topic
    refresh: str = "batch"
    """`batch`: read anew for every micro-batch, so changes are seen; `start`: read once and kept in memory."""

    @property
    def text(self) -> str:
        return f"table over {self.stream.text}"


Source = Topic | Table


def topic(
    *names: str,
    pattern: str | None = None,
    value: Schema | None = None,
    key: Schema | None = None,
    key_required: bool = False,
    starting: str | datetime | Mapping[str, Mapping[int, int]] = "earliest",
    max_per_trigger: int | None = None,
    read_committed: bool = True,
    tombstones: str = "dead-letter",
    options: Mapping[str, str] | None = None,
) -> Topic:
    """A stream of records.

    `starting` counts for the first run only; after that the checkpoint does. `max_per_trigger` bounds the records of a
    micro-batch. `tombstones`: what becomes of null values where the schema wants something. `options` are Spark's.
    """
    if bool(names) == bool(pattern):
        raise Sentence("sources.topic needs the name of a topic, or pattern='…', and not both.")
    if tombstones not in TOMBSTONES:
        raise Sentence(f"tombstones may be {' or '.join(TOMBSTONES)}, not {tombstones!r}.")
    if max_per_trigger is not None and max_per_trigger < 1:
        raise Sentence("max_per_trigger is a number of records from 1 on.")
    key = key or schemas.text()
    if key.kind not in ("text", "raw"):
        raise Sentence("a key's schema may be schemas.text() or schemas.raw().")
    return Topic(
        names,
        pattern,
        value or schemas.raw(),
        key,
        key_required,
        _starting(starting),
        max_per_trigger,
        read_committed,
        tombstones,
        tuple(sorted((options or {}).items())),
    )


def table(name: str, *, value: Schema, key: Schema | None = None, refresh: str = "batch") -> Table:
    """The newest value of every key of a compacted topic, to join a stream with."""
    if refresh not in REFRESHES:
        raise Sentence(f"refresh may be {' or '.join(REFRESHES)}, not {refresh!r}.")
    return Table(topic(name, value=value, key=key, key_required=True, tombstones="keep"), refresh)


def open_stream(spark: SparkSession, source: Topic, bootstrap: str, *, fail_on_data_loss: bool) -> DataFrame:
    """Every record of the topic with its columns and, where it does not fit, the reason."""
    reader = spark.readStream.format("kafka").options(**stream_options(source, bootstrap))
    return _parsed(reader.option("failOnDataLoss", str(fail_on_data_loss).lower()).load(), source)


def open_table(spark: SparkSession, source: Table, bootstrap: str) -> DataFrame:
    """The rows of the table as they are whenever the frame is looked at."""
    options = {**stream_options(source.stream, bootstrap), "startingOffsets": "earliest", "endingOffsets": "latest"}
    options.pop("maxOffsetsPerTrigger", None)
    held = _parsed(spark.read.format("kafka").options(**options).load(), source.stream)
    rows = latest_per_key(schemas.good(held))
    return rows.cache() if source.refresh == "start" else rows


def empty(spark: SparkSession, source: Source) -> DataFrame:
    """A frame with the source's columns and no rows, to try datasets on without a broker."""
    stream = source.stream if isinstance(source, Table) else source
    kafka = (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
        "timestampType int, headers array<struct<key: string, value: binary>>"
    )
    return schemas.good(_parsed(spark.createDataFrame([], kafka), stream))


def stream_options(source: Topic, bootstrap: str) -> dict[str, str]:
    """What Spark's Kafka source is told."""
    options = {"kafka.bootstrap.servers": bootstrap, "includeHeaders": "true", **READING}
    if source.pattern:
        options["subscribePattern"] = source.pattern
    else:
        options["subscribe"] = ",".join(source.topics)
    if source.starting.isdecimal():
        options["startingTimestamp"] = source.starting
        options["startingOffsetsByTimestampStrategy"] = "latest"
    else:
        options["startingOffsets"] = source.starting
    if source.read_committed:
        options["kafka.isolation.level"] = "read_committed"
    if source.max_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(source.max_per_trigger)
    return {**options, **dict(source.options)}


def _parsed(records: DataFrame, source: Topic) -> DataFrame:
    return schemas.parsed(
        records, source.schema, key=source.key, key_required=source.key_required, tombstones=source.tombstones
    )


def _starting(starting: str | datetime | Mapping[str, Mapping[int, int]]) -> str:
    import json

    if isinstance(starting, datetime):
        return str(int(starting.timestamp() * 1000))
    if isinstance(starting, Mapping):
        return json.dumps({name: {str(p): at for p, at in offsets.items()} for name, offsets in starting.items()})
    if starting in ("earliest", "latest") or starting.startswith("{"):
        return starting
    try:
        return str(int(datetime.fromisoformat(starting).timestamp() * 1000))
    except ValueError:
        raise Sentence(
            f"starting may be earliest, latest, offsets or a moment such as 2026-11-15T22:30:00, not {starting!r}."
        ) from None
