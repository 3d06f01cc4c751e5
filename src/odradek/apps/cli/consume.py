"""`odradek consume`: the records of a topic, for people or one JSON object a line."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import suppress

from odradek.apps.cli.progress import Progress
from odradek.apps.cli.record_text import record_data, record_lines
from odradek.apps.cli.topic_description import known_topics
from odradek.apps.terminal.options import (
    WITH_SESSION,
    add_connection_options,
    add_format_option,
    datetime_ms,
    natural,
    positive,
    seconds,
)
from odradek.apps.terminal.output import emit_one_of_many, json_line, plural
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import Session, reach
from odradek.client.cluster import TopicPartition
from odradek.client.consumer import Consumer, ConsumerRecord
from odradek.client.errors import ClientError
from odradek.protocol.errors import KafkaError
from odradek.protocol.records.record import Record

ISOLATION_LEVELS = ("read_committed", "read_uncommitted")

POLL_MS = 250

COMMIT_INTERVAL_S = 5
"""As consumers do that commit by themselves."""


def declare(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Show the records of a topic: those that are there when the command begins, or with --follow also those that "
        "come. It starts at the beginning, with --follow at the end, and with --group where the group has committed."
    )
    parser.add_argument("topic", metavar="TOPIC")
    start = parser.add_argument_group("where to start").add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true", help="at the first record there is")
    start.add_argument("--offset", type=natural, metavar="OFFSET", help="at this offset")
    start.add_argument("--since", type=datetime_ms, metavar="MOMENT", help="at the first record since then")
    parser.add_argument(
        "--partition", type=natural, action="append", metavar="N", help="only this one; may be given several times"
    )
    parser.add_argument("--group", metavar="GROUP", help="as a member of this group, which shares the partitions")
    parser.add_argument(
        "--isolation-level",
        choices=ISOLATION_LEVELS,
        help="read_committed: no records of transactions that are open or aborted (default: read_uncommitted)",
    )
    stop = parser.add_argument_group("when to stop")
    stop.add_argument("--max-messages", type=positive, metavar="N", help="after so many records")
    stop.add_argument("--timeout", type=seconds, metavar="S", help="after so many seconds without a record")
    stop.add_argument("--follow", "-f", action="store_true", help="not at the end: wait for more (Ctrl-C stops)")
    add_connection_options(parser)
    add_format_option(parser)
    parser.set_defaults(run=WITH_SESSION, work=consume)


async def consume(session: Session, options: argparse.Namespace) -> int:
    _check(options)
    async with session.admin() as admin:
        await reach(admin.cluster)
        (topic,) = await known_topics(admin, [options.topic])
    count = len(topic.partitions)
    chosen = sorted(set(options.partition if options.partition is not None else range(count)))
    if chosen[-1] >= count:
        raise Sentence(f"{topic.name} has {plural(count, 'partition')}, counted from 0: {chosen[-1]} is not there.")
    async with session.consumer(_settings(options)) as consumer:
        reading = _Reading(consumer, options)
        if options.group is not None:
            consumer.subscribe([topic.name], on_revoked=reading.revoked, on_lost=reading.lost)
        else:
            consumer.assign([TopicPartition(topic.name, index) for index in chosen])
            await _seek(consumer, options)
        shown = await reading.run()
        await _conclude(consumer, options, shown)
    if options.timeout is not None and options.max_messages is not None and shown < options.max_messages:
        wanted = plural(options.max_messages, "record")
        raise Sentence(f"{shown} of {wanted} came before there was none for {options.timeout:g} s.")
    return 0


def _check(options: argparse.Namespace) -> None:
    if options.group is not None and options.partition is not None:
        raise Sentence("a group shares out the partitions itself: leave out --partition or --group.", 2)
    if options.group is not None and (options.offset is not None or options.since is not None):
        raise Sentence(
            "a group goes on where it has committed: leave out --offset and --since, or move it first with "
            "odradek group reset-offsets.",
            2,
        )


def _settings(options: argparse.Namespace) -> dict[str, str]:
    at_end = options.follow and not options.from_beginning
    settings = {"auto.offset.reset": "latest" if at_end else "earliest", "allow.auto.create.topics": "false"}
    if options.isolation_level is not None:
        settings["isolation.level"] = options.isolation_level
    if options.group is not None:
        # What the consumer has handed out is not what has been written: `_Reading` knows, and commits that.
        settings |= {"group.id": options.group, "enable.auto.commit": "false"}
    return settings


async def _seek(consumer: Consumer, options: argparse.Namespace) -> None:
    """Where to start; without a word about it `auto.offset.reset` decides."""
    partitions = consumer.assignment
    if options.since is not None:
        for partition, found in (await consumer.offsets_for_times(dict.fromkeys(partitions, options.since))).items():
            if found is None:
                consumer.seek_to_end(partition)
            else:
                consumer.seek(partition, found.offset)
    elif options.offset is not None:
        firsts, ends = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
        for partition in partitions:
            if not firsts[partition] <= options.offset <= ends[partition]:
                held = f"{firsts[partition]} to {ends[partition]}"
                raise Sentence(f"{partition} has offsets {held}: {options.offset} is not among them.")
            consumer.seek(partition, options.offset)


class _Reading:
    """Reads and shows until there is a reason to stop."""

    def __init__(self, consumer: Consumer, options: argparse.Namespace) -> None:
        self._consumer = consumer
        self._options = options
        self._ends: dict[TopicPartition, int] = {}
        self._shown = 0
        self._written: dict[TopicPartition, int] = {}
        """Up to where records have reached whoever reads them, and that is not committed yet."""
        self._commit_at = time.monotonic() + COMMIT_INTERVAL_S

    async def run(self) -> int:
        """How many records were shown."""
        options = self._options
        quiet_since = time.monotonic()
        total = options.max_messages
        # Records on a terminal are progress enough.
        with Progress("consuming", total, hidden=sys.stdout.isatty()) as progress:
            while total is None or self._shown < total:
                most = None if total is None else total - self._shown
                records = await self._consumer.poll(POLL_MS, max_records=most)
                if records:
                    self._show(records)
                    sys.stdout.flush()
                    self._written |= {TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
                    progress.advance(len(records))
                    quiet_since = time.monotonic()
                elif options.timeout is not None and time.monotonic() - quiet_since >= options.timeout:
                    break
                if time.monotonic() >= self._commit_at:
                    await self._commit_quietly(list(self._written))
                if not options.follow and await self._is_at_end():
                    break
        await self._commit(list(self._written))
        return self._shown

    async def revoked(self, partitions: list[TopicPartition]) -> None:
        """Others read on from here; also when this consumer is closed, as Ctrl-C does."""
        await self._commit_quietly([each for each in partitions if each in self._written])

    def lost(self, partitions: list[TopicPartition]) -> None:
        """They are somebody else's already."""
        for partition in partitions:
            self._written.pop(partition, None)

    async def _commit_quietly(self, partitions: list[TopicPartition]) -> None:
        """What could not be committed is committed later, or read again."""
        with suppress(KafkaError, ClientError):
            await self._commit(partitions)

    async def _commit(self, partitions: list[TopicPartition]) -> None:
        self._commit_at = time.monotonic() + COMMIT_INTERVAL_S
        if self._options.group is not None and partitions:
            offsets = {partition: self._written.pop(partition) for partition in partitions}
            try:
                await self._consumer.commit(offsets)
            except BaseException:
                self._written = offsets | self._written
                raise

    def _show(self, records: list[ConsumerRecord]) -> None:
        self._shown += len(records)
        lines: list[str] = []
        for each in records:
            held = Record(each.key, each.value, each.headers, each.timestamp, each.offset)
            if self._options.format == "table":
                lines += record_lines(each.partition, held)
            elif self._options.format == "json":
                lines.append(json_line(record_data(each.topic, each.partition, held)))
            else:
                emit_one_of_many(self._options, record_data(each.topic, each.partition, held), ())
        # Line by line: of one large piece a part may be lost without an error when the reader goes away.
        write = sys.stdout.write
        for line in lines:
            write(line + "\n")

    async def _is_at_end(self) -> bool:
        """Whether everything has been read that was there when the partitions were first seen."""
        partitions = self._consumer.assignment
        unknown = [partition for partition in partitions if partition not in self._ends]
        if unknown:
            self._ends |= await self._consumer.end_offsets(unknown)
        for partition in partitions:
            if await self._consumer.position(partition) < self._ends[partition]:
                return False
        return bool(partitions)


async def _conclude(consumer: Consumer, options: argparse.Namespace, shown: int) -> None:
    """To people, how many there were; to those who asked as a group, where it is now and what it has committed."""
    if options.format != "table":
        return
    print(f"{plural(shown, 'record')}.", file=sys.stderr)
    if options.group is None or not consumer.assignment:
        return
    committed = await consumer.committed(consumer.assignment)
    ends = await consumer.end_offsets(consumer.assignment)
    for partition, held in committed.items():
        current = await consumer.position(partition)
        print(
            f"{partition}: current offset {current}, committed {held.offset if held else '-'}, end {ends[partition]}.",
            file=sys.stderr,
        )
