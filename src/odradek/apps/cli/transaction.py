"""`odradek transaction`: which transactions are open, for how long and where, what waits behind them, and their end."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import Any

from odradek.apps.cli.hanging_transactions import declare_hanging
from odradek.apps.cli.outcomes import report, told_by_brokers
from odradek.apps.terminal.options import add_actions, add_many, add_remote_action, natural, seconds
from odradek.apps.terminal.output import emit, fields, span_text, table, time_text
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import LISTING_PATIENCE_MS
from odradek.client.admin import Admin
from odradek.client.admin.transactions import ALL_DURATIONS, TransactionDescription
from odradek.client.cluster import TopicPartition
from odradek.client.leaders import LATEST, Answers, FoundOffset
from odradek.configdef import did_you_mean
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.list_transactions import TransactionState

OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")
"""States in which partitions wait to be told how it ends."""
STATES = ("Empty", *OPEN, "CompleteCommit", "CompleteAbort")


def declare(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(parser, "Look at transactions, and end those that nobody ends.")
    listing = add_remote_action(
        actions,
        "list",
        "show transactional ids and what state they are in",
        list_transactions,
        "Show transactional ids, the state they are in, and how long those are open that have not ended.",
    )
    which = listing.add_mutually_exclusive_group()
    which.add_argument("--open", action="store_true", help="only those with a transaction that has not ended")
    which.add_argument(
        "--state", action="append", default=[], metavar="STATE", help=f"only those in this state: {', '.join(STATES)}"
    )
    listing.add_argument(
        "--producer-id", type=natural, action="append", default=[], metavar="ID", help="only of this producer id"
    )
    listing.add_argument(
        "--longer-than", type=seconds, metavar="SECONDS", help="only those with a transaction open for so long"
    )
    listing.add_argument(
        "--pattern", metavar="REGEX", help="only transactional ids that are described by this (RE2) as a whole"
    )
    describing = add_remote_action(
        actions,
        "describe",
        "show producer, age and partitions of transactions, and what waits behind them",
        describe,
        "Show who has transactional ids, since when their transaction is open, and of each of its partitions where it "
        "began, the last stable offset (LSO), up to which read_committed consumers read, and how far behind the end it "
        "is. Any open transaction of the partition may be what holds it back.",
    )
    add_many(describing, "transactional_ids", at_least=0, metavar="ID", help_line="default: all that are open")
    fencing = add_remote_action(
        actions,
        "fence",
        "shut a producer out, and abort its transaction",
        fence,
        "Shut out whoever uses a transactional id now, and abort its transaction if one is open. A producer that is "
        "started afterwards has the id to itself.",
    )
    add_many(fencing, "transactional_ids", at_least=1, metavar="ID")
    declare_hanging(actions)


async def list_transactions(admin: Admin, options: argparse.Namespace) -> int:
    """All that coordinators know, with the age of what is open."""
    for state in options.state:
        if state not in STATES:
            hint = did_you_mean(state, STATES) or f" There are {', '.join(STATES)}."
            raise Sentence(f"there is no state {state}.{hint}", 2)
    is_open = options.open or (options.longer_than is not None and not options.state)
    listed = await _told(
        admin,
        states=OPEN if is_open else options.state,
        producer_ids=options.producer_id,
        longer_than_ms=ALL_DURATIONS if options.longer_than is None else int(options.longer_than * 1000),
        pattern=options.pattern,
    )
    opened = [each.transactional_id for _, each in listed if each.transaction_state in OPEN]
    described = await admin.describe_transactions(opened)
    now_ms = admin.cluster.ports.clock.now_ms()
    data: list[dict[str, Any]] = []
    for coordinator, each in listed:
        known = described.get(each.transactional_id)
        if not isinstance(known, TransactionDescription):
            known = None
        data.append(
            {
                "transactional_id": each.transactional_id,
                "state": each.transaction_state,
                "producer_id": each.producer_id,
                "coordinator": coordinator,
                "age_ms": _age_ms(known, now_ms) if known is not None else None,
                "partitions": len(known.partitions) if known is not None else None,
            }
        )
    rows = [tuple((each | {"age_ms": span_text(each["age_ms"])}).values()) for each in data]
    headings = ("TRANSACTIONAL-ID", "STATE", "PRODUCER", "COORDINATOR", "AGE", "PARTITIONS")
    emit(options, data, table(headings, rows) if data else ["No transactions."])
    return 0


async def describe(admin: Admin, options: argparse.Namespace) -> int:
    names = options.transactional_ids
    if not names:
        names = [each.transactional_id for _, each in await _told(admin, states=OPEN)]
    known = await known_transactions(admin, names)
    partitions = {partition for each in known for partition in each.partitions}
    stable = await _ends(admin, partitions, read_committed=True)
    ends = await _ends(admin, partitions, read_committed=False)
    began = await _began(admin, partitions)
    now_ms = admin.cluster.ports.clock.now_ms()
    data = []
    for each in known:
        data.append(
            {
                "transactional_id": each.transactional_id,
                "state": each.state,
                "coordinator": each.coordinator,
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "timeout_ms": each.timeout_ms,
                "start_timestamp": each.start_ms if each.state in OPEN else None,
                "age_ms": _age_ms(each, now_ms),
                "partitions": [
                    _partition_data(partition, began.get((partition, each.producer_id)), stable, ends)
                    for partition in sorted(each.partitions)
                ],
            }
        )
    lines: list[str] = []
    for told in data:
        lines += [""] if lines else []
        lines += _lines(told)
    emit(options, data, lines if data else ["No transaction is open."])
    return 0


async def fence(admin: Admin, options: argparse.Namespace) -> int:
    """Only ids that there are: fencing any other would make it."""
    outcomes: dict[str, KafkaError | None] = {}
    for known in await known_transactions(admin, options.transactional_ids):
        try:
            await admin.fence_producer(known.transactional_id, transaction_timeout_ms=known.timeout_ms)
            outcomes[known.transactional_id] = None
        except KafkaError as refused:
            outcomes[known.transactional_id] = refused
    return report(options, "producer", outcomes, "fenced")


async def known_transactions(admin: Admin, names: Collection[str]) -> list[TransactionDescription]:
    """Those of these ids, or a Sentence about the first that does not exist."""
    known = []
    for name, described in (await admin.describe_transactions(names)).items():
        if isinstance(described, KafkaError):
            if described.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                listed = [each.transactional_id for _, each in await _told(admin)]
                hint = did_you_mean(name, listed) or " `odradek transaction list` shows those there are."
                raise Sentence(f"there is no transactional id {name}.{hint}")
            raise described
        known.append(described)
    return known


async def _told(admin: Admin, **filters: Any) -> list[tuple[int, TransactionState]]:
    """By transactional id, each with its coordinator, from all brokers that answer."""
    told = await admin.list_transactions_by_broker(**filters, timeout_ms=LISTING_PATIENCE_MS)
    found = told_by_brokers(told, "transactions")
    return sorted(found, key=lambda listed: (listed[1].transactional_id, listed[0]))


async def _ends(admin: Admin, partitions: Collection[TopicPartition], *, read_committed: bool) -> Answers[FoundOffset]:
    wanted = dict.fromkeys(partitions, LATEST)
    return await admin.list_offsets(wanted, read_committed=read_committed, timeout_ms=LISTING_PATIENCE_MS)


async def _began(admin: Admin, partitions: Collection[TopicPartition]) -> dict[tuple[TopicPartition, int], int]:
    """The first offset of every open transaction, by partition and producer id; nothing where nobody tells."""
    return {
        (partition, each.producer_id): each.current_txn_start_offset
        for partition, producers in (await admin.describe_producers(partitions)).items()
        if not isinstance(producers, KafkaError)
        for each in producers
        if each.current_txn_start_offset >= 0
    }


def _partition_data(
    partition: TopicPartition, began: int | None, stable: Answers[FoundOffset], ends: Answers[FoundOffset]
) -> dict[str, Any]:
    last_stable, end = stable.get(partition), ends.get(partition)
    lso = last_stable.offset if isinstance(last_stable, FoundOffset) else None
    high_watermark = end.offset if isinstance(end, FoundOffset) else None
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "first_offset": began,
        "last_stable_offset": lso,
        "high_watermark": high_watermark,
        "lag": None if lso is None or high_watermark is None else max(high_watermark - lso, 0),
    }


def _age_ms(known: TransactionDescription, now_ms: int) -> int | None:
    return max(now_ms - known.start_ms, 0) if known.state in OPEN and known.start_ms is not None else None


def _lines(told: dict[str, Any]) -> list[str]:
    head: list[tuple[str, object]] = [
        ("Transactional id", told["transactional_id"]),
        ("State", told["state"]),
        ("Coordinator", told["coordinator"]),
        ("Producer", f"{told['producer_id']}, epoch {told['producer_epoch']}"),
        ("Timeout", span_text(told["timeout_ms"])),
    ]
    if told["age_ms"] is not None:
        head.append(("Open", f"{span_text(told['age_ms'])}, since {time_text(told['start_timestamp'])}"))
    rows = [tuple(each.values()) for each in told["partitions"]]
    headings = ("TOPIC", "PARTITION", "BEGINS", "LSO", "END", "LSO LAG")
    return [*fields(head), *(table(headings, rows) if rows else ())]
