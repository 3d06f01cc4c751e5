"""`odradek acl`: who may do what with which topics, groups and more."""

from __future__ import annotations

import argparse
from enum import IntEnum

from odradek.apps.cli.outcomes import report
from odradek.apps.terminal.options import add_actions, add_remote_action
from odradek.apps.terminal.output import emit, table
from odradek.apps.terminal.sentence import Sentence
from odradek.client.admin import Admin
from odradek.client.errors import check
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.create_acls import AclCreation
from odradek.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsMatchingAcl
from odradek.protocol.messages.describe_acls import AclDescription, DescribeAclsRequest
from odradek.security.acl import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType

RESOURCES = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.DELEGATION_TOKEN,
    ResourceType.USER,
)
OPERATIONS = tuple(each for each in Operation if each not in (Operation.UNKNOWN, Operation.ANY))


def declare(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(parser, "List, add and remove access rules.")
    listing = add_remote_action(actions, "list", "show the rules there are", list_acls)
    adding = add_remote_action(actions, "add", "add rules", add_acls)
    removing = add_remote_action(actions, "remove", "remove the rules that match", remove_acls)
    for action in (listing, adding, removing):
        _add_resource(action)
        action.add_argument("--principal", metavar="USER", help="whom the rule is about, such as User:alice or User:*")
        action.add_argument("--host", metavar="ADDRESS", help="from where (default of add: anywhere)")
        action.add_argument(
            "--operation",
            action="append",
            choices=[_word(each) for each in OPERATIONS],
            metavar="WHAT",
            help="read, write, describe, ... or all; may be given several times",
        )
        allowing = action.add_mutually_exclusive_group()
        allowing.add_argument("--allow", dest="permission", action="store_const", const=Permission.ALLOW)
        allowing.add_argument("--deny", dest="permission", action="store_const", const=Permission.DENY)
    removing.add_argument("--dry-run", action="store_true", help="only show the rules that match")


def _add_resource(action: argparse.ArgumentParser) -> None:
    group = action.add_mutually_exclusive_group()
    for kind in RESOURCES:
        flag = f"--{_word(kind)}"
        if kind is ResourceType.CLUSTER:
            group.add_argument(flag, action="store_const", const=CLUSTER_NAME, help="about the cluster itself")
        else:
            group.add_argument(flag, metavar="NAME", help=f"about this {_word(kind)}")
    action.add_argument("--prefixed", action="store_true", help="about all whose names begin so")


async def list_acls(admin: Admin, options: argparse.Namespace) -> int:
    _show(options, await _matching(admin, options, PatternType.MATCH), "No rules match.")
    return 0


async def add_acls(admin: Admin, options: argparse.Namespace) -> int:
    kind, name = _resource(options)
    if kind is ResourceType.ANY or name is None:
        raise Sentence("a rule about what? Say --topic, --group, --cluster, --transactional-id or another.", 2)
    if not options.principal or not options.operation:
        raise Sentence("a rule needs --principal and --operation.", 2)
    rules = [
        AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=PatternType.PREFIXED if options.prefixed else PatternType.LITERAL,
            principal=options.principal,
            host=options.host or "*",
            operation=operation,
            permission_type=options.permission or Permission.ALLOW,
        )
        for operation in _operations(options)
    ]
    outcomes = await admin.create_acls(rules)
    names = [f"{_word_of(Operation, rule.operation)} of {options.principal} on {name}" for rule in rules]
    return report(options, "rule", dict(zip(names, outcomes, strict=True)), "added")


async def remove_acls(admin: Admin, options: argparse.Namespace) -> int:
    kind, name = _resource(options)
    if kind is ResourceType.ANY and not (options.principal or options.host or options.operation or options.permission):
        raise Sentence("that would remove every rule there is: say which, by --topic, --principal or others.", 2)
    if options.dry_run:
        _show(options, await _matching(admin, options, PatternType.LITERAL), "No rules match.")
        return 0
    filters = [
        DeleteAclsFilter(
            resource_type_filter=kind,
            resource_name_filter=name,
            pattern_type_filter=_pattern(options, name, PatternType.LITERAL),
            principal_filter=options.principal,
            host_filter=options.host,
            operation=operation,
            permission_type=options.permission or Permission.ANY,
        )
        for operation in _operations(options)
    ]
    removed: list[dict[str, str]] = []
    for gone in await admin.delete_acls(filters):
        if isinstance(gone, KafkaError):
            raise gone
        for each in gone:
            check(each.error_code, each.error_message)
            removed.append(_rule(each.resource_type, each.resource_name, each.pattern_type, each))
    _show(options, removed, "No rules matched.")
    return 0


async def _matching(admin: Admin, options: argparse.Namespace, pattern: PatternType) -> list[dict[str, str]]:
    kind, name = _resource(options)
    found: list[dict[str, str]] = []
    for operation in _operations(options):
        wanted = DescribeAclsRequest(
            resource_type_filter=kind,
            resource_name_filter=name,
            pattern_type_filter=_pattern(options, name, pattern),
            principal_filter=options.principal,
            host_filter=options.host,
            operation=operation,
            permission_type=options.permission or Permission.ANY,
        )
        found += [
            _rule(resource.resource_type, resource.resource_name, resource.pattern_type, rule)
            for resource in await admin.describe_acls(wanted)
            for rule in resource.acls
        ]
    return found


def _resource(options: argparse.Namespace) -> tuple[ResourceType, str | None]:
    """Type and name that the options name, or what stands for any."""
    for kind in RESOURCES:
        name = getattr(options, kind.name.lower())
        if name is not None:
            return kind, name
    if options.prefixed:
        raise Sentence("--prefixed goes with a name: say --topic, --group or another as well.", 2)
    return ResourceType.ANY, None


def _pattern(options: argparse.Namespace, name: str | None, usual: PatternType) -> PatternType:
    if name is None:
        return PatternType.ANY
    return PatternType.PREFIXED if options.prefixed else usual


def _operations(options: argparse.Namespace) -> list[Operation]:
    return [Operation[_constant(text)] for text in dict.fromkeys(options.operation or ())] or [Operation.ANY]


def _rule(
    resource_type: int, resource_name: str, pattern_type: int, rule: AclDescription | DeleteAclsMatchingAcl
) -> dict[str, str]:
    return {
        "resource_type": _word_of(ResourceType, resource_type),
        "resource_name": resource_name,
        "pattern": _word_of(PatternType, pattern_type),
        "principal": rule.principal,
        "host": rule.host,
        "operation": _word_of(Operation, rule.operation),
        "permission": _word_of(Permission, rule.permission_type),
    }


def _show(options: argparse.Namespace, rules: list[dict[str, str]], nothing: str) -> None:
    headings = ("RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION")
    rows = sorted(tuple(rule.values()) for rule in rules)
    emit(options, rules, table(headings, rows) if rules else [nothing])


def _word(member: IntEnum) -> str:
    """As it is typed and shown: `transactional-id`."""
    return member.name.lower().replace("_", "-")


def _constant(text: str) -> str:
    return text.upper().replace("-", "_")


def _word_of(kind: type[IntEnum], number: int) -> str:
    """The word for a number that a broker sent; a newer one's may mean nothing here yet."""
    return _word(kind(number)) if number in kind._value2member_map_ else str(number)
