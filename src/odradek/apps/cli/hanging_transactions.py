"""Transactions that are open in a partition while no coordinator knows of them: nobody would ever end them.

Consumers at read_committed wait for ever behind one. Brokers older than KIP-890 could leave them behind.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import Any, NamedTuple

from odradek.apps.cli.outcomes import report
from odradek.apps.cli.topic_description import named_partitions
from odradek.apps.terminal.options import Actions, add_many, add_remote_action, natural, seconds
from odradek.apps.terminal.output import complain, emit, span_text, table, time_text
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import failure_text
from odradek.client.admin import Admin
from odradek.client.admin.transactions import HangingTransaction, TransactionDescription
from odradek.client.cluster import TopicPartition
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_producers import ProducerState

LONGEST_TIMEOUT_S = 900.0
"""transaction.max.timeout.ms, unless somebody has changed it: what is younger may be ended by its coordinator."""


class OpenTransaction(NamedTuple):
    """Where a producer's transaction is open, as the partition's leader tells."""

    partition: TopicPartition
    producer: ProducerState

    @property
    def start_offset(self) -> int:
        return self.producer.current_txn_start_offset


def declare_hanging(actions: Actions) -> None:
    finding = add_remote_action(
        actions,
        "find-hanging",
        "show transactions that no coordinator knows of",
        find_hanging,
        "Show transactions that are open in partitions although no coordinator knows of them: they hold up consumers "
        "at read_committed for ever, until somebody aborts them.",
    )
    add_many(finding, "topics", at_least=0, metavar="TOPIC[:PARTITION,...]", help_line="default: all topics")
    finding.add_argument(
        "--older-than",
        type=seconds,
        default=LONGEST_TIMEOUT_S,
        metavar="SECONDS",
        help="pass over those written to later than so long ago (default: 900, the longest timeout there may be)",
    )
    aborting = add_remote_action(
        actions,
        "abort",
        "abort a hanging transaction in a partition",
        abort,
        "Abort a transaction that find-hanging has shown, in one partition. One that its coordinator knows of is left "
        "alone: fence its producer instead.",
    )
    aborting.add_argument("topic", metavar="TOPIC:PARTITION")
    aborting.add_argument(
        "--start-offset", type=natural, required=True, metavar="OFFSET", help="where it begins in the partition"
    )
    aborting.add_argument(
        "--force", action="store_true", help="even if its coordinator knows of it: other partitions may commit it"
    )


async def find_hanging(admin: Admin, options: argparse.Namespace) -> int:
    """Of the partitions that have a leader that answers; a complaint about the others."""
    if options.topics:
        partitions = await named_partitions(admin, options.topics, "find-hanging")
    else:
        topics = await admin.list_topics()
        partitions = [TopicPartition(each.name, one.partition) for each in topics for one in each.partitions]
    older_than_ms = int(options.older_than * 1000)
    found = await hanging_among(admin, await open_transactions(admin, partitions, older_than_ms=older_than_ms))
    now_ms = admin.cluster.ports.clock.now_ms()
    data: list[dict[str, Any]] = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "start_offset": producer.current_txn_start_offset,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "coordinator_epoch": producer.coordinator_epoch,
            "last_timestamp": producer.last_timestamp,
            "idle_ms": max(now_ms - producer.last_timestamp, 0),
        }
        for partition, producer in sorted(found, key=lambda each: (each.partition, each.start_offset))
    ]
    rows = [(*list(each.values())[:-2], time_text(each["last_timestamp"]), span_text(each["idle_ms"])) for each in data]
    headings = ("TOPIC", "PARTITION", "BEGINS", "PRODUCER", "EPOCH", "COORDINATOR EPOCH", "LAST WRITE", "IDLE")
    lines = table(headings, rows) if data else ["No transaction hangs."]
    emit(options, data, lines)
    return 0


async def abort(admin: Admin, options: argparse.Namespace) -> int:
    """What would tear a transaction is refused."""
    named = await named_partitions(admin, [options.topic], "abort")
    if len(named) != 1 or ":" not in options.topic:
        raise Sentence(f"abort takes one partition, as in {named[0].topic}:0.", 2)
    found = [
        each
        for each in await open_transactions(admin, named, older_than_ms=-1)
        if each.start_offset == options.start_offset
    ]
    if not found:
        raise Sentence(
            f"no transaction that is open in {named[0]} begins at offset {options.start_offset}: "
            "`odradek transaction find-hanging` shows those that hang."
        )
    if not options.force and not await hanging_among(admin, found):
        raise Sentence(
            f"its coordinator knows of the transaction at offset {options.start_offset} of {named[0]} and will end it: "
            "`odradek transaction fence` aborts it everywhere."
        )
    partition, producer = found[0]
    hanging = HangingTransaction(
        partition=partition,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        # Unknown where no transaction of this producer has ended there: 0 is that of the first coordinator.
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )
    return report(
        options,
        "transaction",
        {
            f"at offset {options.start_offset} of {each}": failure
            for each, failure in (await admin.abort_transactions([hanging])).items()
        },
        "aborted",
    )


async def open_transactions(
    admin: Admin, partitions: Collection[TopicPartition], *, older_than_ms: int
) -> list[OpenTransaction]:
    """Those that were last written to so long ago."""
    found = []
    now_ms = admin.cluster.ports.clock.now_ms()
    for partition, producers in (await admin.describe_producers(partitions)).items():
        if isinstance(producers, KafkaError):
            complain(f"partition {partition} is left out: {failure_text(producers)}.")
            continue
        found += [
            OpenTransaction(partition, each)
            for each in producers
            if each.current_txn_start_offset >= 0 and now_ms - each.last_timestamp > older_than_ms
        ]
    return found


async def hanging_among(admin: Admin, found: Collection[OpenTransaction]) -> list[OpenTransaction]:
    """Those that no coordinator knows of; KafkaError if one of these does not tell.

    What was ended while coordinators were asked is open no more, so partitions are asked again at last.
    """
    if not found:
        return []
    listed = await admin.list_transactions_by_broker(producer_ids={each.producer.producer_id for each in found})
    ids: dict[int, str] = {}
    for told in listed.values():
        if isinstance(told, KafkaError):
            raise told
        ids |= {each.producer_id: each.transactional_id for each in told}
    described = await admin.describe_transactions(ids.values())
    unknown = []
    for each in found:
        known = described.get(ids.get(each.producer.producer_id, ""))
        if isinstance(known, KafkaError) and known.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise known
        if not isinstance(known, TransactionDescription) or each.partition not in known.partitions:
            unknown.append(each)
    if not unknown:
        return []
    again = await open_transactions(admin, {each.partition for each in unknown}, older_than_ms=-1)
    still = {(each.partition, each.producer.producer_id, each.start_offset) for each in again}
    return [each for each in unknown if (each.partition, each.producer.producer_id, each.start_offset) in still]
