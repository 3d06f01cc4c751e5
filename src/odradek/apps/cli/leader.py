"""`odradek leader`: elections on demand."""

from __future__ import annotations

import argparse

from odradek.apps.cli.topic_description import named_partitions
from odradek.apps.terminal.options import add_actions, add_many, add_remote_action
from odradek.apps.terminal.output import complain, emit, plural, table
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import failure_text
from odradek.client.admin import Admin
from odradek.client.admin.topics import Election
from odradek.client.cluster import TopicPartition
from odradek.protocol.errors import ErrorCode


def declare(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(parser, "Let partitions have other leaders.")
    electing = add_remote_action(
        actions,
        "elect",
        "let preferred replicas lead, or anybody where nobody may",
        elect,
        "Let the preferred replica of partitions lead, which is the first one, if it is in sync; where nobody is, if "
        "it is eligible (ELR) or was the last known leader. With --unclean: where nobody leads, let a replica lead "
        "that is none of these. What it does not have is lost then.",
    )
    add_many(electing, "topics", at_least=0, metavar="TOPIC[:PARTITION,...]")
    electing.add_argument("--all", action="store_true", help="all partitions of all topics")
    electing.add_argument("--unclean", action="store_true", help="where nobody leads; records may be lost")


async def elect(admin: Admin, options: argparse.Namespace) -> int:
    """Whether somebody leads who should; that it is so already is no failure."""
    chosen = await _chosen(admin, options)
    outcomes = await admin.elect_leaders(Election.UNCLEAN if options.unclean else Election.PREFERRED, chosen)
    leaders = {
        TopicPartition(topic.name, each.partition): each.leader
        for topic in await admin.list_topics()
        for each in topic.partitions
    }
    needless = [
        partition
        for partition, failure in outcomes.items()
        if failure is not None and failure.code is ErrorCode.ELECTION_NOT_NEEDED
    ]
    failures = {
        partition: failure
        for partition, failure in sorted(outcomes.items())
        if failure is not None and partition not in needless
    }
    data = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "elected": failure is None,
            "leader": leaders.get(partition, -1) if leaders.get(partition, -1) >= 0 else None,
            "error": failures[partition].code.name if partition in failures else None,
        }
        for partition, failure in sorted(outcomes.items())
    ]
    rows = [(f"{each['topic']}-{each['partition']}", each["leader"]) for each in data if each["elected"]]
    lines = table(("PARTITION", "LEADER"), rows) if rows else []
    if not lines and not failures:
        lines = ["Nothing to do: everywhere somebody leads." if options.unclean else "Preferred replicas lead already."]
    elif needless:
        lines.append(f"{plural(len(needless), 'partition')} needed no election.")
    emit(options, data, lines)
    for partition, failure in failures.items():
        complain(f"partition {partition}: {failure_text(failure)}.")
    return 1 if failures else 0


async def _chosen(admin: Admin, options: argparse.Namespace) -> list[TopicPartition] | None:
    if options.all == bool(options.topics):
        raise Sentence("name topics, as in orders or orders:0,1; or say --all.", 2)
    if options.all:
        return None
    return await named_partitions(admin, options.topics, "leader elect")
