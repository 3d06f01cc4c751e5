"""Records that did not fit: kept in a topic of their own, with the reason, and sent back when that is mended.

What was sent back is noted in a compacted topic beside it, one record an origin, so that each is sent once, however
they are chosen.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.apps.pipelines import schemas
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import Session, reach, unknown_topic
from odradek.client.cluster import TopicPartition
from odradek.client.errors import ClientError
from odradek.client.leaders import EARLIEST, LATEST
from odradek.client.offsets import CommittedOffset
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.values import value

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from odradek.client.admin import Admin
    from odradek.client.consumer import ConsumerRecord
    from odradek.client.producer import Producer, RecordMetadata

PREFIX = "odradek.dead-letter."
REPLAYED = "odradek.replayed-from"
FIELDS = ("reason", "pipeline", "topic", "topic-id", "partition", "offset", "timestamp")
NOTES = ".replayed"
"""What the topic is called behind the dead letters' own name that holds what was sent back."""

LIMIT_BYTES = 1_048_576
"""How large a producer lets a record be unless it is told otherwise (max.request.size)."""

FIRST_BYTES = 4_096
"""How much is kept of each part of a record that is too large to be kept whole."""

SPARE_BYTES = 512
"""What a batch of one record needs beside its contents, and some."""

CHUNK = 100
"""How many are sent back before it is noted that they were: so many are sent again where that is broken off."""

LARGEST_BYTES = 1 << 30
"""How large a record may be that is sent back: its topic's brokers know better."""


@value
class DeadLetter:
    """A bad record as it was, and what is known about it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    reason: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    topic_id: str = ""
    """Empty where the brokers told none: records of a recreated topic have the offsets of others before."""

    dataset: str = ""
    """The dataset whose expectation a row did not meet; empty for a record that could not be read at all."""

    truncated: str = ""
    """The parts of which only the first bytes are there, since the record was too large to be kept."""

    size_bytes: int | None = None
    """How large a truncated record was."""

    @property
    def origin(self) -> tuple[str, int, int, str, str]:
        """Two dead letters of the same origin are one record, written again after a crash."""
        return self.topic, self.partition, self.offset, self.topic_id, self.dataset


def records(
    held: DataFrame, pipeline: str, *, topic_ids: Mapping[str, str] | None = None, limit_bytes: int = LIMIT_BYTES
) -> DataFrame:
    """Bad records as Spark's Kafka sink wants them: key, value and headers as they were, and headers that say why.

    Of a record that would not be taken, being larger than the limit with what is added, only the beginning is kept.
    """
    from pyspark.sql import functions as F

    topic_id = F.lit(None).cast("string")
    for name, each in sorted((topic_ids or {}).items()):
        topic_id = F.when(F.col("_topic") == name, F.lit(each)).otherwise(topic_id)
    known = {
        "reason": F.col(schemas.REASON),
        "pipeline": F.lit(pipeline),
        "topic": F.col("_topic"),
        "topic-id": topic_id,
        "partition": F.col("_partition").cast("string"),
        "offset": F.col("_offset").cast("string"),
        "timestamp": F.unix_millis("_timestamp").cast("string"),
    }
    added = _headers({name: known[name] for name in FIELDS})
    before = F.coalesce(F.col("_headers"), F.array().cast("array<struct<key: string, value: binary>>"))
    whole = schemas.bad(held).select(
        F.col(f"{schemas.ORIGINAL}.key").alias("key"),
        F.col(f"{schemas.ORIGINAL}.value").alias("value"),
        before.alias("before"),
        added.alias("added"),
    )
    return _within(whole, limit_bytes)


def _within(letters: DataFrame, limit_bytes: int) -> DataFrame:
    """Letters that a producer takes: of those that are too large the first bytes, with headers that say so."""
    from pyspark.sql import functions as F

    first = min(FIRST_BYTES, limit_bytes // 4)
    sizes = {"key": _size("key"), "value": _size("value"), "headers": _headers_size("before")}
    added = _headers_size("added") + SPARE_BYTES
    size = sizes["key"] + sizes["value"] + sizes["headers"]
    too_large = size + added > limit_bytes
    cut = {name: too_large & (sizes[name] > first) for name in sizes}
    parts = F.concat_ws(",", *(F.when(cut[name], F.lit(name)) for name in sizes))
    told = _headers({"truncated": F.when(too_large, parts), "size": F.when(too_large, size.cast("string"))})
    nothing = F.array().cast("array<struct<key: string, value: binary>>")
    kept = F.when(cut["headers"], nothing).otherwise(F.col("before"))
    return letters.select(
        *(
            F.when(cut[name], F.substring(name, 1, first)).otherwise(F.col(name)).alias(name)
            for name in ("key", "value")
        ),
        F.concat(kept, "added", told).alias("headers"),
    )


def _headers(told: Mapping[str, Column]) -> Column:
    """Headers of a dead letter, without those of which nothing is known."""
    from pyspark.sql import functions as F

    all_of_them = [
        F.struct(F.lit(PREFIX + name).alias("key"), each.cast("binary").alias("value")) for name, each in told.items()
    ]
    return F.filter(F.array(*all_of_them), lambda header: header["value"].isNotNull())


def _size(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(F.length(name), F.lit(0))


def _headers_size(name: str) -> Column:
    """With up to five bytes before each key and value that say how long they are."""
    from pyspark.sql import functions as F

    def one(total: Column, header: Column) -> Column:
        key, held = F.length(header["key"].cast("binary")), F.coalesce(F.length(header["value"]), F.lit(0))
        return total + key + held + 10

    return F.aggregate(name, F.lit(0), one)


def rows(
    failing: DataFrame,
    pipeline: str,
    dataset: str,
    *,
    topic_ids: Mapping[str, str] | None = None,
    limit_bytes: int = LIMIT_BYTES,
) -> DataFrame:
    """Rows of a dataset that do not meet what is expected, as JSON: what record each was made of is all that is left
    of its bytes, and headers say which that was."""
    from pyspark.sql import functions as F

    columns = [name for name in failing.columns if name not in (*schemas.META, schemas.REASON)]
    nothing = F.lit(None).cast("binary")
    original = F.struct(
        (F.col("_key").cast("binary") if "_key" in failing.columns else nothing).alias("key"),
        F.to_json(F.struct(*[F.col(f"`{name}`") for name in columns])).cast("binary").alias("value"),
    )
    held = failing.withColumn(schemas.ORIGINAL, original)
    dataset_header = F.struct(F.lit(PREFIX + "dataset").alias("key"), F.lit(dataset).cast("binary").alias("value"))
    before = F.col("_headers") if "_headers" in failing.columns else F.lit(None)
    empty = F.array().cast("array<struct<key: string, value: binary>>")
    headers = F.concat(F.coalesce(before, empty), F.array(dataset_header))
    return records(held.withColumn("_headers", headers), pipeline, topic_ids=topic_ids, limit_bytes=limit_bytes)


def read_record(record: ConsumerRecord) -> DeadLetter:
    """A dead letter from its record; a Sentence if it is none."""
    told = {key.removeprefix(PREFIX): value for key, value in record.headers if key.startswith(PREFIX)}
    if not told.keys() >= {"reason", "topic", "partition", "offset"}:
        raise Sentence(
            f"offset {record.offset} of {record.topic}-{record.partition} is no dead letter: its headers do not say "
            "where it is from."
        )

    def text(name: str) -> str:
        return (told.get(name) or b"").decode(errors="replace")

    return DeadLetter(
        record.key,
        record.value,
        tuple((key, value) for key, value in record.headers if not key.startswith(PREFIX)),
        text("reason"),
        text("topic"),
        int(text("partition")),
        int(text("offset")),
        int(text("timestamp") or -1),
        text("topic-id"),
        text("dataset"),
        text("truncated"),
        int(text("size")) if "size" in told else None,
    )


async def read_dead_letters(
    session: Session, topic: str, *, group: str | None = None
) -> tuple[list[DeadLetter], dict[TopicPartition, int]]:
    """All that are there now, each origin once, and the topic's ends; with a group, those behind what it committed."""
    async with session.admin() as admin:
        await reach(admin.cluster)
        described = (await admin.describe_topics([topic]))[topic]
        if isinstance(described, KafkaError):
            raise await unknown_topic(admin, topic)
        partitions = [TopicPartition(topic, each.partition) for each in described.partitions]
        committed = await admin.group_offsets(group, partitions) if group else {}
        at = {partition: held.offset for partition, held in committed.items() if not isinstance(held, KafkaError)}
        starts, goals = await _bounds(admin, partitions, at)
    found: dict[tuple[str, int, int, str, str], DeadLetter] = {}
    for record in await _records(session, starts, goals):
        letter = read_record(record)
        found.setdefault(letter.origin, letter)
    return list(found.values()), goals


async def replay(
    session: Session, topic: str, *, group: str, to: str | None, reasons: Sequence[str], dry_run: bool
) -> tuple[int, int]:
    """Send dead letters back to where they came from (or `to`), each once; how many were sent, and how many were not.

    With `reasons`, only letters whose reason holds one of the texts are sent; the group stays where it is then, as the
    others are still to be looked at. Those that are not whole, and rows of datasets, which are no records of the topic
    that they come from, are not sent.
    """
    letters, ends = await read_dead_letters(session, topic, group=group)
    notes = f"{topic}{NOTES}"
    sent_before = await _noted(session, notes)
    left = [each for each in letters if _note(each) not in sent_before]
    wanted = [
        each
        for each in left
        if not each.truncated
        and (to or not each.dataset)
        and (not reasons or any(text in each.reason for text in reasons))
    ]
    if dry_run:
        return len(wanted), len(left) - len(wanted)
    if wanted:
        async with session.admin() as admin:
            await _make_notes(admin, notes)
        async with session.producer({"max.request.size": str(LARGEST_BYTES)}) as producer:
            for begin in range(0, len(wanted), CHUNK):
                await _send_back(producer, wanted[begin : begin + CHUNK], to, notes)
    if not reasons:
        await _commit(session, group, ends)
    return len(wanted), len(left) - len(wanted)


async def _send_back(producer: Producer, letters: Sequence[DeadLetter], to: str | None, notes: str) -> None:
    """Send some and note which of them arrived; then raise what kept others from it."""
    receipts: list[asyncio.Future[RecordMetadata]] = []
    refused: BaseException | None = None
    for each in letters:
        origin = f"{each.topic}-{each.partition}@{each.offset}".encode()
        try:
            receipts.append(
                await producer.submit(
                    to or each.topic, each.value, key=each.key, headers=[*each.headers, (REPLAYED, origin)]
                )
            )
        except (KafkaError, ClientError) as failure:
            refused = failure
            break
    outcomes = await asyncio.gather(*receipts, return_exceptions=True)
    arrived = [each for each, outcome in zip(letters, outcomes, strict=False) if not isinstance(outcome, BaseException)]
    await asyncio.gather(*[await producer.submit(notes, b"", key=_note(each)) for each in arrived])
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if failures or refused is not None:
        raise failures[0] if failures else refused or AssertionError


def _note(letter: DeadLetter) -> bytes:
    """The key under which it is noted that a letter was sent back."""
    return json.dumps(letter.origin).encode()


async def _noted(session: Session, notes: str) -> set[bytes]:
    """What was sent back so far."""
    async with session.admin() as admin:
        described = (await admin.describe_topics([notes]))[notes]
        if isinstance(described, KafkaError):
            return set()
        partitions = [TopicPartition(notes, each.partition) for each in described.partitions]
        starts, goals = await _bounds(admin, partitions, {})
    return {record.key for record in await _records(session, starts, goals) if record.key is not None}


async def _make_notes(admin: Admin, notes: str) -> None:
    try:
        await admin.create_topic(notes, partitions=1, configs={"cleanup.policy": "compact"})
    except KafkaError as failure:
        if failure.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


async def _bounds(
    admin: Admin, partitions: Sequence[TopicPartition], at: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Where to begin to read partitions that have something to read, not before `at`; and where all of them end."""
    begins = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    starts: dict[TopicPartition, int] = {}
    goals: dict[TopicPartition, int] = {}
    for partition in partitions:
        begin, end = begins[partition], ends[partition]
        if isinstance(begin, KafkaError):
            raise begin
        if isinstance(end, KafkaError):
            raise end
        goals[partition] = end.offset
        start = max(at.get(partition, begin.offset), begin.offset)
        if start < end.offset:
            starts[partition] = start
    return starts, goals


async def _commit(session: Session, group: str, ends: dict[TopicPartition, int]) -> None:
    async with session.admin() as admin:
        outcomes = await admin.alter_group_offsets(
            group, {partition: CommittedOffset(offset) for partition, offset in ends.items()}
        )
    for failure in outcomes.values():
        if failure is not None:
            raise failure


async def _records(
    session: Session, starts: dict[TopicPartition, int], goals: dict[TopicPartition, int]
) -> list[ConsumerRecord]:
    if not starts:
        return []
    found: list[ConsumerRecord] = []
    async with session.consumer({"enable.auto.commit": "false", "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign(list(starts))
        for partition, at in starts.items():
            consumer.seek(partition, at)
        while any([await consumer.position(partition) < goals[partition] for partition in starts]):
            found += [
                record
                for record in await consumer.poll(timeout_ms=500)
                if record.offset < goals[TopicPartition(record.topic, record.partition)]
            ]
    return found
