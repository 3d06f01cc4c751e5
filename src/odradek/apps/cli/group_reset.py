"""`odradek group reset-offsets`: where a group shall go on; shown first, done only with --execute."""

from __future__ import annotations

import argparse
from typing import Any

from odradek.apps.cli.topic_description import known_topics
from odradek.apps.terminal.options import Actions, add_remote_action, datetime_ms, natural, topic_partitions
from odradek.apps.terminal.output import complain, emit, plural, table
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import failure_text
from odradek.client.admin import Admin
from odradek.client.admin.groups import GroupDescription
from odradek.client.cluster import TopicPartition
from odradek.client.leaders import EARLIEST, LATEST, Answers, FoundOffset
from odradek.client.offsets import CommittedOffset
from odradek.protocol.errors import ErrorCode, KafkaError


def declare_reset(actions: Actions) -> None:
    resetting = add_remote_action(
        actions,
        "reset-offsets",
        "move a group's committed offsets",
        reset_offsets,
        "Show where a group would go on after moving its committed offsets; with --execute, move them. The group must "
        "have no members then.",
    )
    resetting.add_argument("group", metavar="GROUP")
    where = resetting.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--topic",
        dest="topics",
        type=topic_partitions,
        action="append",
        metavar="TOPIC[:PARTITION,...]",
        help="of this topic, or of these partitions of it; may be given several times",
    )
    where.add_argument("--all-topics", action="store_true", help="of all topics that the group has committed")
    target = resetting.add_mutually_exclusive_group(required=True)
    target.add_argument("--to-earliest", action="store_true", help="to the first record there is")
    target.add_argument("--to-latest", action="store_true", help="behind the last record there is")
    target.add_argument("--to-offset", type=natural, metavar="OFFSET", help="to this offset")
    target.add_argument("--to-datetime", type=datetime_ms, metavar="MOMENT", help="to the first record since then")
    target.add_argument("--shift-by", type=int, metavar="N", help="by so many records, back if negative")
    resetting.add_argument("--execute", action="store_true", help="do it, not only show it")


async def reset_offsets(admin: Admin, options: argparse.Namespace) -> int:
    committed = await admin.group_offsets(options.group)
    partitions = await _chosen(admin, options, committed)
    starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    moments: Answers[FoundOffset] = {}
    if options.to_datetime is not None:
        moments = await admin.list_offsets(dict.fromkeys(partitions, options.to_datetime))
    plan: dict[TopicPartition, CommittedOffset] = {}
    data: list[dict[str, Any]] = []
    for partition in partitions:
        start, end = _found(starts[partition]), _found(ends[partition])
        at = committed.get(partition)
        now = None if at is None or isinstance(at, KafkaError) else at.offset
        new = new_offset(
            options,
            partition,
            committed=now,
            start=start.offset,
            end=end.offset,
            at_moment=_found(moments[partition]).offset if moments else -1,
        )
        plan[partition] = CommittedOffset(new)
        data.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "committed_offset": now,
                "new_offset": new,
                "log_end_offset": end.offset,
                "new_lag": end.offset - new,
                "done": False,
            }
        )
    code = await _execute(admin, options, plan, data) if options.execute else 0
    headings = ("TOPIC", "PARTITION", "COMMITTED", "NEW", "LOG-END", "NEW LAG")
    lines = table(headings, [tuple(each.values())[:-1] for each in data])
    lines.append(
        f"{plural(sum(each['done'] for each in data), 'offset')} moved."
        if options.execute
        else "Nothing is changed yet: say --execute to do it."
    )
    emit(options, data, lines)
    return code


def new_offset(
    options: argparse.Namespace,
    partition: TopicPartition,
    *,
    committed: int | None,
    start: int,
    end: int,
    at_moment: int,
) -> int:
    """Where the group shall go on in one partition: never outside of what the log holds."""
    if options.to_earliest:
        return start
    if options.to_latest:
        return end
    if options.to_datetime is not None:
        return end if at_moment < 0 else at_moment
    if options.to_offset is not None:
        wanted: int = options.to_offset
    elif committed is None:
        raise Sentence(
            f"--shift-by starts from a committed offset, and there is none for {partition}: "
            "name the topics it has committed with --topic, or use --to-earliest."
        )
    else:
        wanted = committed + options.shift_by
    return min(max(wanted, start), end)


async def _chosen(
    admin: Admin, options: argparse.Namespace, committed: Answers[CommittedOffset]
) -> list[TopicPartition]:
    """The partitions that the options name, in order."""
    if options.all_topics:
        if not committed:
            raise Sentence(f"group {options.group} has committed nothing: name topics with --topic.")
        return sorted(committed)
    chosen: dict[TopicPartition, None] = {}
    for topic in await known_topics(admin, [name for name, _ in options.topics]):
        for name, indexes in options.topics:
            if name != topic.name:
                continue
            missing = [index for index in indexes if index >= len(topic.partitions)]
            if missing:
                raise Sentence(f"{name} has {plural(len(topic.partitions), 'partition')}: {missing[0]} is not there.")
            for index in indexes or range(len(topic.partitions)):
                chosen[TopicPartition(name, index)] = None
    return sorted(chosen)


async def _execute(
    admin: Admin,
    options: argparse.Namespace,
    plan: dict[TopicPartition, CommittedOffset],
    data: list[dict[str, Any]],
) -> int:
    """Commit the plan and note in the data what is done; 1 if anything is not."""
    group = (await admin.describe_groups([options.group]))[options.group]
    if isinstance(group, GroupDescription) and group.members:
        raise Sentence(
            f"group {options.group} has {plural(len(group.members), 'member')}, whose commits would undo this: "
            "stop them first."
        )
    try:
        outcomes = await admin.alter_group_offsets(options.group, plan)
    except KafkaError as refused:
        if refused.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NON_EMPTY_GROUP):
            raise Sentence(f"group {options.group} has members by now: stop them first.") from refused
        raise
    failures = 0
    for each in data:
        failure = outcomes[TopicPartition(each["topic"], each["partition"])]
        each["done"] = failure is None
        if failure is not None:
            failures += 1
            complain(f"{each['topic']}-{each['partition']}: {failure_text(failure)}.")
    return 1 if failures else 0


def _found(answer: FoundOffset | KafkaError) -> FoundOffset:
    if isinstance(answer, KafkaError):
        raise answer
    return answer
