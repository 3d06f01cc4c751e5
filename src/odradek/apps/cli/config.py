"""`odradek config`: settings of topics, brokers and groups, as they are and as they shall be."""

from __future__ import annotations

import argparse
from typing import Any

from odradek.apps.cli.outcomes import report
from odradek.apps.terminal.options import add_actions, add_many, add_remote_action, pairs
from odradek.apps.terminal.output import emit, table
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import unknown_topic
from odradek.client.admin import Admin
from odradek.client.admin.cluster import ConfigChange, ConfigOperation, ConfigResource, ResourceType
from odradek.configdef import did_you_mean
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_configs import DescribeConfigsResourceResult

KINDS = {
    "topic": ResourceType.TOPIC,
    "broker": ResourceType.BROKER,
    "group": ResourceType.GROUP,
    "broker-logger": ResourceType.BROKER_LOGGER,
}
ALL_BROKERS = "default"
"""What stands for the default of all brokers, which the protocol gives an empty name."""

SOURCES = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "file",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}
"""DescribeConfigs' numbers for where a setting comes from."""

OWN = {
    "topic": ("topic",),
    "broker": ("broker", "all brokers"),
    "group": ("group",),
    "broker-logger": ("broker logger",),
}
"""Where a setting comes from that was set for a thing of this kind."""


def declare(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(parser, "Show and change settings of topics, brokers and groups while they are in use.")
    describing = add_remote_action(actions, "describe", "show settings, and where they come from", describe)
    _add_resource(describing)
    add_many(describing, "keys", at_least=0, metavar="KEY", help_line="only these (default: those that were set)")
    describing.add_argument("--all", action="store_true", help="also those that have their default")
    describing.add_argument("--docs", action="store_true", help="with what each means")
    setting = add_remote_action(actions, "set", "change settings; all others stay as they are", set_configs)
    _add_resource(setting)
    add_many(setting, "settings", at_least=1, metavar="KEY=VALUE")
    unsetting = add_remote_action(actions, "unset", "let settings have their default again", unset_configs)
    _add_resource(unsetting)
    add_many(unsetting, "keys", at_least=1, metavar="KEY")
    for action in (setting, unsetting):
        action.add_argument("--dry-run", action="store_true", help="only ask whether it could be done")


def _add_resource(action: argparse.ArgumentParser) -> None:
    action.add_argument("kind", choices=tuple(KINDS), metavar="KIND", help=", ".join(KINDS))
    action.add_argument(
        "name", metavar="NAME", help=f"a topic, a group, a broker's id, or `{ALL_BROKERS}` for all brokers"
    )


async def describe(admin: Admin, options: argparse.Namespace) -> int:
    resource = _resource(options)
    described = await admin.describe_configs([resource], synonyms=True, documentation=options.docs)
    configs = described[resource]
    if isinstance(configs, KafkaError):
        raise await _refusal(admin, resource, configs)
    for key in options.keys:
        if key not in [each.name for each in configs]:
            hint = did_you_mean(key, [each.name for each in configs]) or " --all shows those there are."
            raise Sentence(f"a {options.kind} has no setting {key}.{hint}")
    shown = [
        data
        for each in sorted(configs, key=lambda config: config.name)
        for data in [_config_data(each, options.docs)]
        if (each.name in options.keys if options.keys else options.all or data["source"] in OWN[options.kind])
    ]
    rows = [(each["name"], each["value"], each["source"], each["read_only"] or "") for each in shown]
    lines = table(("SETTING", "VALUE", "FROM", "READ-ONLY"), rows)
    if options.docs:
        lines += [line for each in shown for line in ("", f"{each['name']}:", f"  {each['documentation'] or '-'}")]
    nothing = f"{options.kind} {options.name} has no settings of its own; --all shows the defaults."
    emit(options, shown, lines if shown else [nothing])
    return 0


async def set_configs(admin: Admin, options: argparse.Namespace) -> int:
    changes = [ConfigChange(key, text) for key, text in pairs(options.settings, "config set").items()]
    return await _alter(admin, options, changes)


async def unset_configs(admin: Admin, options: argparse.Namespace) -> int:
    changes = [ConfigChange(key, None, ConfigOperation.DELETE) for key in dict.fromkeys(options.keys)]
    return await _alter(admin, options, changes)


async def _alter(admin: Admin, options: argparse.Namespace, changes: list[ConfigChange]) -> int:
    resource = _resource(options)
    outcomes = await admin.alter_configs({resource: changes}, validate_only=options.dry_run)
    failure = outcomes[resource]
    if failure is not None:
        raise await _refusal(admin, resource, failure)
    done = "could be changed" if options.dry_run else "changed"
    return report(options, options.kind, {options.name: None}, done)


async def _refusal(admin: Admin, resource: ConfigResource, failure: KafkaError) -> Exception:
    """What the broker said, or what it could not know: the nearest name."""
    if resource.type is ResourceType.TOPIC and failure.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return await unknown_topic(admin, resource.name)
    return failure


def _resource(options: argparse.Namespace) -> ConfigResource:
    kind = KINDS[options.kind]
    if kind is ResourceType.BROKER and options.name == ALL_BROKERS:
        return ConfigResource(kind, "")
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and not options.name.isdecimal():
        raise Sentence(f"a {options.kind} goes by its broker's id, a number: {options.name!r} is none.", 2)
    return ConfigResource(kind, options.name)


def _config_data(config: DescribeConfigsResourceResult, with_docs: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": config.name,
        "value": None if config.is_sensitive else config.value,
        "source": SOURCES.get(config.config_source, "unknown"),
        "sensitive": config.is_sensitive,
        "read_only": config.read_only,
        "synonyms": [
            {"name": each.name, "value": each.value, "source": SOURCES.get(each.source, "unknown")}
            for each in config.synonyms
        ],
    }
    return data | ({"documentation": config.documentation} if with_docs else {})
