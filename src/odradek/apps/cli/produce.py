"""`odradek produce`: lines, files and JSON become records."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import Any

from odradek.apps.cli.lines import STDIN, read_lines, total_bytes
from odradek.apps.cli.progress import Progress
from odradek.apps.cli.record_text import GivenRecord, parse_record
from odradek.apps.terminal.options import (
    WITH_SESSION,
    add_connection_options,
    add_format_option,
    add_many,
    natural,
    pairs,
)
from odradek.apps.terminal.output import emit, plural, table
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import Session, reach, unknown_topic
from odradek.client.admin import Admin
from odradek.client.producer import Producer, RecordMetadata
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.record import Header

LAST_CHANCE_MS = 3_000
"""How long records that are under way may still take after Ctrl-C."""

PARTITIONERS: dict[str, dict[str, str]] = {
    "key": {},
    "sticky": {"partitioner.ignore.keys": "true"},
    "round-robin": {"partitioner.class": "round-robin"},
}
"""The producer's settings for each."""


def declare(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Send records to a topic: a record a line, from files or else from stdin, until its end (Ctrl-D)."
    )
    parser.add_argument("topic", metavar="TOPIC")
    add_many(parser, "files", at_least=0, metavar="FILE", help_line="read these instead of stdin (`-` is stdin)")
    shape = parser.add_argument_group("records")
    shape.add_argument("--key-separator", metavar="TEXT", help="what separates key and value in a line")
    shape.add_argument(
        "--json",
        action="store_true",
        help="each line is an object with key, value, headers, partition and timestamp, as far as wanted; "
        '{"base64": ...} stands for bytes',
    )
    shape.add_argument("--key", metavar="TEXT", help="the key of all records")
    shape.add_argument("--header", action="append", default=[], metavar="NAME=TEXT", help="a header of all records")
    shape.add_argument("--partition", type=natural, metavar="N", help="send all to this partition")
    shape.add_argument(
        "--partitioner",
        choices=tuple(PARTITIONERS),
        help="by key (the default), or regardless of keys sticky or in turn",
    )
    sending = parser.add_argument_group("sending")
    sending.add_argument("--acks", choices=("all", "1", "0"), help="who must have a record (default: all)")
    sending.add_argument("--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), help="default: none")
    sending.add_argument("--rate", type=natural, metavar="N", help="at most so many records a second")
    sending.add_argument("--create", action="store_true", help="create the topic if it is not there")
    add_connection_options(parser)
    add_format_option(parser)
    parser.set_defaults(run=WITH_SESSION, work=produce)


async def produce(session: Session, options: argparse.Namespace) -> int:
    _check(options)
    headers = tuple((name, text.encode()) for name, text in pairs(options.header, "--header").items())
    await _prepare_topic(session, options)
    settings = dict(PARTITIONERS[options.partitioner or "key"])
    if options.acks is not None:
        settings["acks"] = options.acks
    if options.compression is not None:
        settings["compression.type"] = options.compression
    tally = Tally()
    began = time.monotonic()
    producer = session.producer(settings)
    try:
        await _send_all(producer, options, headers, tally)
        await producer.flush()
    except asyncio.CancelledError:
        # What was typed before Ctrl-C was meant to be sent.
        await producer.close(LAST_CHANCE_MS)
        raise
    finally:
        await producer.close()
    _show(options, tally, time.monotonic() - began)
    if tally.failure is not None:
        raise tally.failure
    return 0


class Tally:
    """What became of the records: count, first and last offset by partition, and the first failure."""

    def __init__(self) -> None:
        self.partitions: dict[int, list[int]] = {}
        self.failure: Exception | None = None

    def note(self, receipt: asyncio.Future[RecordMetadata]) -> None:
        failure = receipt.exception()
        if failure is not None:
            if self.failure is None and isinstance(failure, Exception):
                self.failure = failure
            return
        placed = receipt.result()
        held = self.partitions.setdefault(placed.partition, [0, placed.offset, placed.offset])
        held[0] += 1
        held[1] = min(held[1], placed.offset)
        held[2] = max(held[2], placed.offset)

    def data(self, topic: str, seconds: float) -> dict[str, Any]:
        return {
            "topic": topic,
            "records": sum(count for count, _, _ in self.partitions.values()),
            "seconds": round(seconds, 3),
            "partitions": [
                {
                    "partition": partition,
                    "records": count,
                    "first_offset": first if first >= 0 else None,
                    "last_offset": last if last >= 0 else None,
                }
                for partition, (count, first, last) in sorted(self.partitions.items())
            ],
        }


def _check(options: argparse.Namespace) -> None:
    if options.json and (options.key_separator is not None or options.key is not None):
        raise Sentence("--json says the keys itself: leave out --key and --key-separator.", 2)
    if options.key is not None and options.key_separator is not None:
        raise Sentence("--key gives all records one key, --key-separator each its own: leave out one of them.", 2)
    if options.key_separator == "":
        raise Sentence("--key-separator must not be empty.", 2)
    if options.partition is not None and options.partitioner is not None:
        raise Sentence("--partition sends all records to one partition: leave out --partitioner.", 2)
    if options.rate == 0:
        raise Sentence("--rate must be at least 1.", 2)


async def _prepare_topic(session: Session, options: argparse.Namespace) -> None:
    """A topic that does not exist is more often misspelt than wanted, so it is not made without a word."""
    async with session.admin() as admin:
        await reach(admin.cluster)
        topic = (await admin.describe_topics([options.topic]))[options.topic]
        if isinstance(topic, KafkaError):
            if topic.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise topic
            if not options.create:
                raise Sentence(f"{await unknown_topic(admin, options.topic)} --create makes it.")
            await _create(admin, options.topic)
        elif options.partition is not None and options.partition >= len(topic.partitions):
            count = plural(len(topic.partitions), "partition")
            raise Sentence(f"{options.topic} has {count}, counted from 0: {options.partition} is not there.")


async def _create(admin: Admin, name: str) -> None:
    try:
        await admin.create_topic(name)
    except KafkaError as refused:
        if refused.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


async def _send_all(producer: Producer, options: argparse.Namespace, headers: tuple[Header, ...], tally: Tally) -> None:
    """Every record that can be read, until one is refused."""
    files = options.files or [STDIN]
    total = total_bytes(files)
    began, sent = time.monotonic(), 0
    typing = STDIN in files and sys.stdin.isatty()
    with Progress("producing", total, unit="record" if total is None else "byte", hidden=typing) as progress:
        read = progress.advance if total is not None else lambda _: None
        async for where, line in read_lines(files, read):
            record = _record(options, line, where)
            partition = options.partition
            if partition is None and options.partitioner is None:
                partition = record.partition
            receipt = await producer.submit(
                options.topic,
                record.value,
                key=record.key,
                partition=partition,
                headers=(*record.headers, *headers),
                timestamp_ms=record.timestamp,
            )
            receipt.add_done_callback(tally.note)
            if tally.failure is not None:
                return
            sent += 1
            if total is None:
                progress.advance()
            if options.rate:
                await asyncio.sleep(max(began + sent / options.rate - time.monotonic(), 0))


def _record(options: argparse.Namespace, line: bytes, where: str) -> GivenRecord:
    if options.json:
        return parse_record(line, where)
    key = None if options.key is None else options.key.encode()
    if options.key_separator is not None:
        key, found, line = line.partition(options.key_separator.encode())
        if not found:
            raise Sentence(f"{where} has no {options.key_separator!r} between key and value.")
    return GivenRecord(key, line, (), None, None)


def _show(options: argparse.Namespace, tally: Tally, seconds: float) -> None:
    data = tally.data(options.topic, seconds)
    rows = [tuple(each.values()) for each in data["partitions"]]
    lines = [f"{plural(data['records'], 'record')} to {options.topic} in {seconds:.2f} s."]
    if rows:
        lines += table(("PARTITION", "RECORDS", "FIRST OFFSET", "LAST OFFSET"), rows)
    emit(options, data, lines)
