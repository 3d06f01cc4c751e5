"""`odradek group`: who reads what, how far they are behind, and where they shall go on."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import Any

from odradek.apps.cli.group_reset import declare_reset
from odradek.apps.cli.outcomes import report, told_by_brokers
from odradek.apps.terminal.options import add_actions, add_many, add_remote_action, topic_partitions
from odradek.apps.terminal.output import emit, fields, table
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import LISTING_PATIENCE_MS
from odradek.client.admin import Admin
from odradek.client.admin.groups import GroupDescription, MemberDescription
from odradek.client.cluster import TopicPartition
from odradek.client.leaders import LATEST
from odradek.configdef import did_you_mean
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.list_groups import ListedGroup

DEAD = "Dead"
"""The state that DescribeGroups gives a group nobody has heard of."""


def declare(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(parser, "Look at consumer groups, move or delete their offsets.")
    listing = add_remote_action(actions, "list", "show all groups", list_groups)
    listing.add_argument("--state", action="append", default=[], metavar="STATE", help="only groups in this state")
    listing.add_argument("--type", action="append", default=[], metavar="TYPE", help="only groups of this type")
    describing = add_remote_action(
        actions,
        "describe",
        "show committed offsets, log ends and lag, or members, or the state",
        describe,
        "Show how far groups are: of each partition the committed offset, the end of the log (LEO), the lag between "
        "them, and the member that reads it. Where a member is at the moment, only the member itself knows.",
    )
    add_many(describing, "groups", at_least=0, metavar="GROUP", help_line="default: all")
    what = describing.add_mutually_exclusive_group()
    what.add_argument("--members", action="store_true", help="show the members and their partitions instead")
    what.add_argument("--state", action="store_true", help="show state, assignor and coordinator instead")
    deleting = add_remote_action(actions, "delete", "delete groups that have no members", delete_groups)
    add_many(deleting, "groups", at_least=1, metavar="GROUP")
    declare_reset(actions)
    forgetting = add_remote_action(
        actions, "delete-offsets", "forget what a group has committed for topics", delete_offsets
    )
    forgetting.add_argument("group", metavar="GROUP")
    forgetting.add_argument(
        "--topic",
        dest="topics",
        type=topic_partitions,
        action="append",
        required=True,
        metavar="TOPIC[:PARTITION,...]",
        help="may be given several times",
    )


async def list_groups(admin: Admin, options: argparse.Namespace) -> int:
    found = [
        {
            "group": each.group_id,
            "type": each.group_type or "classic",
            "state": each.group_state,
            "protocol": each.protocol_type,
        }
        for each in await told_groups(admin, states=options.state, types=options.type)
    ]
    lines = table(("GROUP", "TYPE", "STATE", "PROTOCOL"), [tuple(each.values()) for each in found])
    emit(options, found, lines if found else ["No groups."])
    return 0


async def describe(admin: Admin, options: argparse.Namespace) -> int:
    names = options.groups or [each.group_id for each in await told_groups(admin)]
    groups = await known_groups(admin, names)
    data = [_state_data(group) for group in groups]
    for each, group in zip(data, groups, strict=True):
        if options.members:
            each["members"] = [_member_data(member) for member in group.members]
        elif not options.state:
            each["partitions"] = await _progress(admin, group)
    lines: list[str] = []
    for each in data:
        lines += [""] if lines else []
        lines += _lines(each)
    emit(options, data, lines if data else ["No groups."])
    return 0


async def delete_groups(admin: Admin, options: argparse.Namespace) -> int:
    names = list(dict.fromkeys(options.groups))
    outcomes = await admin.delete_groups(names)
    sentences = {}
    for name, failure in outcomes.items():
        if failure is not None and failure.code is ErrorCode.GROUP_ID_NOT_FOUND:
            sentences[name] = str(await unknown_group(admin, name))
        elif failure is not None and failure.code is ErrorCode.NON_EMPTY_GROUP:
            sentences[name] = f"group {name} has members: stop them first (odradek group describe {name} --members)."
    return report(options, "group", outcomes, "deleted", sentences)


async def delete_offsets(admin: Admin, options: argparse.Namespace) -> int:
    (group,) = await known_groups(admin, [options.group])
    wanted: list[TopicPartition] = []
    committed = await admin.group_offsets(group.group_id)
    for topic, indexes in options.topics:
        mine = [each for each in committed if each.topic == topic and (not indexes or each.partition in indexes)]
        if not mine:
            raise Sentence(f"group {group.group_id} has committed nothing there: {topic}.")
        wanted += mine
    outcomes = await admin.delete_group_offsets(group.group_id, wanted)
    named = {f"of {group.group_id} for {partition}": outcome for partition, outcome in sorted(outcomes.items())}
    return report(options, "offset", named, "deleted")


async def told_groups(admin: Admin, *, states: Collection[str] = (), types: Collection[str] = ()) -> list[ListedGroup]:
    """The groups of all brokers that answer, by name; a complaint about each that does not."""
    told = await admin.list_groups_by_broker(states=states, types=types, timeout_ms=LISTING_PATIENCE_MS)
    found = [group for _, group in told_by_brokers(told, "groups")]
    return sorted(found, key=lambda group: group.group_id)


async def known_groups(admin: Admin, names: list[str]) -> list[GroupDescription]:
    """The groups of these names, or a Sentence about the first that does not exist."""
    described = await admin.describe_groups(list(dict.fromkeys(names)))
    groups = []
    for name, group in described.items():
        if isinstance(group, KafkaError):
            if group.code is ErrorCode.GROUP_ID_NOT_FOUND:
                raise await unknown_group(admin, name)
            raise group
        if group.state == DEAD:
            raise await unknown_group(admin, name)
        groups.append(group)
    return groups


async def unknown_group(admin: Admin, name: str) -> Sentence:
    """That there is no such group, with the nearest name there is."""
    known = [each.group_id for each in await told_groups(admin)]
    hint = did_you_mean(name, known) or " `odradek group list` shows those there are."
    return Sentence(f"there is no group {name}.{hint}")


async def _progress(admin: Admin, group: GroupDescription) -> list[dict[str, Any]]:
    """Every partition that the group has committed or that a member was given, in order."""
    committed = await admin.group_offsets(group.group_id)
    owners = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted({*committed, *owners})
    ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST), timeout_ms=LISTING_PATIENCE_MS)
    rows = []
    for partition in partitions:
        at, end, owner = committed.get(partition), ends.get(partition), owners.get(partition)
        offset = None if at is None or isinstance(at, KafkaError) else at.offset
        log_end = None if end is None or isinstance(end, KafkaError) else end.offset
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "committed_offset": offset,
                "log_end_offset": log_end,
                "lag": None if offset is None or log_end is None else max(log_end - offset, 0),
                "member": owner.member_id if owner else None,
                "host": owner.client_host if owner else None,
                "client_id": owner.client_id if owner else None,
            }
        )
    return rows


def _state_data(group: GroupDescription) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "assignor": group.assignor or None,
        "coordinator": group.coordinator,
        "epoch": group.epoch if group.epoch >= 0 else None,
        "member_count": len(group.members),
    }


def _member_data(member: MemberDescription) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "instance": member.group_instance_id,
        "client_id": member.client_id,
        "host": member.client_host,
        "assignment": [str(partition) for partition in sorted(member.assignment)],
    }


def _lines(group: dict[str, Any]) -> list[str]:
    head: list[tuple[str, object]] = [("Group", group["group"]), ("State", f"{group['state']} ({group['type']})")]
    if "members" in group:
        rows = [tuple(each.values()) for each in group["members"]]
        return [*fields(head), *table(("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"), rows)]
    if "partitions" in group:
        total = sum(each["lag"] or 0 for each in group["partitions"])
        rows = [tuple(each.values()) for each in group["partitions"]]
        headings = ("TOPIC", "PARTITION", "COMMITTED", "LOG-END", "LAG", "MEMBER", "HOST", "CLIENT")
        return [*fields([*head, ("Lag", total)]), *table(headings, rows)]
    head += [
        ("Assignor", group["assignor"]),
        ("Coordinator", group["coordinator"]),
        ("Epoch", group["epoch"]),
        ("Members", group["member_count"]),
    ]
    return fields(head)
