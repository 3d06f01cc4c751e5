"""Records that did not fit: kept whole in a topic of their own, with the reason, and sent back when that is mended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.apps.pipelines import schemas
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import Session, reach, unknown_topic
from odradek.client.cluster import TopicPartition
from odradek.client.leaders import EARLIEST, LATEST
from odradek.client.offsets import CommittedOffset
from odradek.protocol.errors import KafkaError
from odradek.values import value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from odradek.client.consumer import ConsumerRecord

PREFIX = "odradek.dead-letter."
REPLAYED = "odradek.replayed-from"
FIELDS = ("reason", "pipeline", "topic", "partition", "offset", "timestamp")


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

    @property
    def origin(self) -> tuple[str, int, int]:
        """Two dead letters of the same origin are one record, written again after a crash."""
        return self.topic, self.partition, self.offset


def records(held: DataFrame, pipeline: str) -> DataFrame:
    """Bad records as Spark's Kafka sink wants them: key, value and headers as they were, and headers that say why."""
    from pyspark.sql import functions as F

    known = {
        "reason": F.col(schemas.REASON),
        "pipeline": F.lit(pipeline),
        "topic": F.col("_topic"),
        "partition": F.col("_partition").cast("string"),
        "offset": F.col("_offset").cast("string"),
        "timestamp": F.unix_millis("_timestamp").cast("string"),
    }
    added = F.array(
        *[F.struct(F.lit(PREFIX + name).alias("key"), known[name].cast("binary").alias("value")) for name in FIELDS]
    )
    before = F.coalesce(F.col("_headers"), F.array().cast("array<struct<key: string, value: binary>>"))
    return schemas.bad(held).select(
        F.col(f"{schemas.ORIGINAL}.key").alias("key"),
        F.col(f"{schemas.ORIGINAL}.value").alias("value"),
        F.concat(before, added).alias("headers"),
    )


def rows(failing: DataFrame, pipeline: str, dataset: str) -> DataFrame:
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
    return records(held.withColumn("_headers", headers), pipeline)


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
        begins = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
        committed = await admin.group_offsets(group, partitions) if group else {}
    starts: dict[TopicPartition, int] = {}
    for partition in partitions:
        begin, end, held = begins[partition], ends[partition], committed.get(partition)
        if isinstance(begin, KafkaError):
            raise begin
        if isinstance(end, KafkaError):
            raise end
        at = begin.offset if held is None or isinstance(held, KafkaError) else max(held.offset, begin.offset)
        if at < end.offset:
            starts[partition] = at
    goals = {partition: end.offset for partition, end in ends.items() if not isinstance(end, KafkaError)}
    found: dict[tuple[str, int, int], DeadLetter] = {}
    for record in await _records(session, starts, goals):
        letter = read_record(record)
        found.setdefault(letter.origin, letter)
    return list(found.values()), goals


async def replay(
    session: Session, topic: str, *, group: str, to: str | None, reasons: Sequence[str], dry_run: bool
) -> tuple[int, int]:
    """Send dead letters back to where they came from (or `to`); how many were sent, and how many were left out.

    What the group has committed is not sent again, so running it twice does no harm. With `reasons`, only letters whose
    reason holds one of the texts are sent, and the group stays where it is: the others are still to be looked at.
    """
    letters, ends = await read_dead_letters(session, topic, group=group)
    wanted = [each for each in letters if not reasons or any(text in each.reason for text in reasons)]
    if not dry_run and wanted:
        async with session.producer({}) as producer:
            receipts = [
                await producer.submit(
                    to or each.topic,
                    each.value,
                    key=each.key,
                    headers=[*each.headers, (REPLAYED, f"{each.topic}-{each.partition}@{each.offset}".encode())],
                )
                for each in wanted
            ]
            await asyncio.gather(*receipts)
        if not reasons:
            await _commit(session, group, ends)
    return len(wanted), len(letters) - len(wanted)


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
