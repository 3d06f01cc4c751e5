"""`odradek topic`: what topics there are, where their partitions lie and how full they are."""

from __future__ import annotations

import argparse
import asyncio

from odradek.apps.cli.outcomes import report
from odradek.apps.cli.topic_description import LACKS, describe_topics, known_topics
from odradek.apps.terminal.options import (
    add_actions,
    add_many,
    add_remote_action,
    datetime_ms,
    natural,
    pairs,
    positive,
)
from odradek.apps.terminal.output import emit, plural, table
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import failure_text, unknown_topic
from odradek.client.admin import Admin
from odradek.client.admin.topics import BROKERS_CHOICE, NewTopic
from odradek.client.cluster import TopicPartition
from odradek.client.leaders import EARLIEST
from odradek.protocol.errors import ErrorCode, KafkaError

HIGH_WATERMARK = -1
"""What DeleteRecords takes for "all that consumers can see"."""


def declare(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(parser, "List, create, describe, change and delete topics.")
    listing = add_remote_action(actions, "list", "show all topics", list_topics)
    listing.add_argument("--exclude-internal", action="store_true", help="leave out topics of the cluster's own")
    creating = add_remote_action(actions, "create", "create topics", create_topics)
    add_many(creating, "topics", at_least=1, metavar="TOPIC")
    creating.add_argument("--partitions", type=positive, metavar="N", help="default: the broker's num.partitions")
    creating.add_argument("--replication-factor", type=positive, metavar="N", help="default: the broker's")
    creating.add_argument(
        "--replica-assignment",
        metavar="IDS",
        help="the brokers of each partition: `1:2,2:1` is two partitions with two replicas each",
    )
    creating.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="a setting of the topic")
    creating.add_argument("--if-not-exists", action="store_true", help="a topic that is there is no error")
    creating.add_argument("--dry-run", action="store_true", help="only ask whether it could be created")
    describing = add_remote_action(
        actions, "describe", "show partitions, leaders, replicas, offsets and sizes", describe
    )
    add_many(describing, "topics", at_least=0, metavar="TOPIC", help_line="default: all")
    for name, help_line in LACKS.items():
        describing.add_argument(f"--{name}-partitions", action="store_true", help=f"only those that {help_line}")
    deleting = add_remote_action(actions, "delete", "delete topics and all their records", delete_topics)
    add_many(deleting, "topics", at_least=1, metavar="TOPIC")
    deleting.add_argument("--if-exists", action="store_true", help="a topic that is not there is no error")
    altering = add_remote_action(actions, "alter", "give a topic more partitions", alter_topic)
    altering.add_argument("topic", metavar="TOPIC")
    altering.add_argument("--partitions", type=positive, metavar="N", required=True, help="how many there shall be")
    altering.add_argument("--dry-run", action="store_true", help="only ask whether it could be done")
    trimming = add_remote_action(actions, "trim", "delete the oldest records of a topic", trim_topic)
    trimming.add_argument("topic", metavar="TOPIC")
    trimming.add_argument(
        "--partition", type=natural, action="append", metavar="N", help="of this partition; may be given several times"
    )
    upto = trimming.add_mutually_exclusive_group(required=True)
    upto.add_argument("--before-offset", type=natural, metavar="OFFSET", help="all that are before this offset")
    upto.add_argument("--before", type=datetime_ms, metavar="MOMENT", help="all that are before this moment")
    upto.add_argument("--all", action="store_true", help="all that are there now")


async def list_topics(admin: Admin, options: argparse.Namespace) -> int:
    topics = await admin.list_topics(internal=not options.exclude_internal)
    found = [
        {
            "name": topic.name,
            "partitions": len(topic.partitions),
            "replication_factor": max((len(each.replicas) for each in topic.partitions), default=0),
            "internal": topic.internal,
        }
        for topic in topics
    ]
    lines = table(("TOPIC", "PARTITIONS", "REPLICATION", "INTERNAL"), [tuple(each.values()) for each in found])
    emit(options, found, lines if found else ["No topics yet: odradek topic create NAME"])
    return 0


async def create_topics(admin: Admin, options: argparse.Namespace) -> int:
    assignment = _assignment(options)
    configs = tuple(pairs(options.config, "--config").items())
    wanted = [
        NewTopic(
            name,
            options.partitions or BROKERS_CHOICE,
            options.replication_factor or BROKERS_CHOICE,
            configs,
            assignment,
        )
        for name in dict.fromkeys(options.topics)
    ]
    outcomes = await admin.create_topics(wanted, validate_only=options.dry_run)
    if options.if_not_exists:
        outcomes = _forgiven(outcomes, ErrorCode.TOPIC_ALREADY_EXISTS)
    return report(options, "topic", outcomes, "could be created" if options.dry_run else "created")


async def describe(admin: Admin, options: argparse.Namespace) -> int:
    return await describe_topics(admin, options)


async def delete_topics(admin: Admin, options: argparse.Namespace) -> int:
    outcomes = await admin.delete_topics(list(dict.fromkeys(options.topics)))
    missing = [name for name, failure in outcomes.items() if _is_unknown(failure)]
    if options.if_exists:
        outcomes = _forgiven(outcomes, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    elif missing:
        hints = await asyncio.gather(*[unknown_topic(admin, name) for name in missing])
        return report(options, "topic", outcomes, "deleted", dict(zip(missing, map(str, hints), strict=True)))
    return report(options, "topic", outcomes, "deleted")


async def alter_topic(admin: Admin, options: argparse.Namespace) -> int:
    (topic,) = await known_topics(admin, [options.topic])
    if options.partitions <= len(topic.partitions):
        raise Sentence(
            f"{topic.name} has {plural(len(topic.partitions), 'partition')} already: they can become more, never fewer."
        )
    outcomes = await admin.create_partitions({topic.name: options.partitions}, validate_only=options.dry_run)
    done = f"{'could have' if options.dry_run else 'has'} {plural(options.partitions, 'partition')}"
    return report(options, "topic", outcomes, done)


async def trim_topic(admin: Admin, options: argparse.Namespace) -> int:
    (topic,) = await known_topics(admin, [options.topic])
    count = len(topic.partitions)
    chosen = sorted(set(options.partition if options.partition is not None else range(count)))
    if chosen[-1] >= count:
        raise Sentence(
            f"{topic.name} has {plural(count, 'partition')}, from 0 to {count - 1}: {chosen[-1]} is not there."
        )
    partitions = [TopicPartition(topic.name, index) for index in chosen]
    before = dict.fromkeys(partitions, HIGH_WATERMARK if options.all else options.before_offset)
    if options.before is not None:
        found = await admin.list_offsets(dict.fromkeys(partitions, options.before))
        for partition, first in found.items():
            if isinstance(first, KafkaError):
                raise first
            # Where nothing is as young as that moment, everything is older.
            before[partition] = HIGH_WATERMARK if first.offset < 0 else first.offset
    starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    trimmed = await admin.delete_records(before)
    data, failed = [], 0
    for partition in partitions:
        answer, start = trimmed[partition], starts[partition]
        failed += isinstance(answer, KafkaError)
        data.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "start_offset_before": None if isinstance(start, KafkaError) else start.offset,
                "start_offset": None if isinstance(answer, KafkaError) else answer,
                "error": f"{failure_text(answer)}." if isinstance(answer, KafkaError) else None,
            }
        )
    rows = [
        (each["partition"], each["start_offset_before"], each["start_offset"], each["error"] or "") for each in data
    ]
    emit(options, data, table(("PARTITION", "BEGAN AT", "BEGINS AT", ""), rows))
    return 1 if failed else 0


def _assignment(options: argparse.Namespace) -> tuple[tuple[int, ...], ...]:
    """`1:2,2:1` as a tuple of replicas a partition."""
    if options.replica_assignment is None:
        return ()
    if options.partitions or options.replication_factor:
        raise Sentence("--replica-assignment says it all: leave out --partitions and --replication-factor.", 2)
    try:
        return tuple(
            tuple(int(replica) for replica in partition.split(":"))
            for partition in options.replica_assignment.split(",")
        )
    except ValueError:
        raise Sentence(
            f"--replica-assignment takes broker ids as in 1:2,2:1, not {options.replica_assignment!r}.", 2
        ) from None


def _is_unknown(failure: KafkaError | None) -> bool:
    return failure is not None and failure.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _forgiven(outcomes: dict[str, KafkaError | None], code: ErrorCode) -> dict[str, KafkaError | None]:
    """The outcomes, with failures of this kind taken for success: what was wanted is so already."""
    return {
        name: None if failure is not None and failure.code is code else failure for name, failure in outcomes.items()
    }
