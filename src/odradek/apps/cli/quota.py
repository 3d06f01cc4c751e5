"""`odradek quota`: how much clients may produce, fetch and ask for."""

from __future__ import annotations

import argparse

from odradek.apps.cli.outcomes import report
from odradek.apps.terminal.options import add_actions, add_many, add_remote_action, pairs
from odradek.apps.terminal.output import emit, table
from odradek.apps.terminal.sentence import Sentence
from odradek.client.admin import Admin
from odradek.configdef import did_you_mean
from odradek.protocol.messages.describe_client_quotas import ComponentData

KINDS = ("user", "client-id", "ip")
KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
DEFAULT_ENTITY = "<default>"
EXACT, DEFAULT = 0, 1
"""DescribeClientQuotas' numbers for what a filter matches."""


def declare(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(
        parser, "List, set and remove quotas of users, client ids and addresses, or the defaults of all of them."
    )
    listing = add_remote_action(actions, "list", "show the quotas there are", list_quotas)
    setting = add_remote_action(
        actions, "set", "set quotas", set_quotas, f"Set quotas. The keys are {', '.join(KEYS)}."
    )
    add_many(setting, "settings", at_least=1, metavar="KEY=NUMBER")
    unsetting = add_remote_action(actions, "unset", "remove quotas", unset_quotas)
    add_many(unsetting, "keys", at_least=1, metavar="KEY", help_line=", ".join(KEYS))
    for action in (listing, setting, unsetting):
        for kind in KINDS:
            action.add_argument(f"--{kind}", metavar="NAME", help=f"of this {kind}; `{DEFAULT_ENTITY}` is any other")


async def list_quotas(admin: Admin, options: argparse.Namespace) -> int:
    components = [
        ComponentData(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
        for kind, name in _entity(options).items()
    ]
    entries = await admin.describe_client_quotas(components)
    held = [
        ({each.entity_type: each.entity_name for each in entry.entity}, {each.key: each.value for each in entry.values})
        for entry in entries
    ]
    found = [{"entity": entity, "quotas": quotas} for entity, quotas in held]
    rows = [(_entity_text(entity), key, limit) for entity, quotas in held for key, limit in quotas.items()]
    emit(options, found, table(("ENTITY", "QUOTA", "LIMIT"), sorted(rows)) if rows else ["No quotas are set."])
    return 0


async def set_quotas(admin: Admin, options: argparse.Namespace) -> int:
    limits: dict[str, float | None] = {}
    for key, text in pairs(options.settings, "quota set").items():
        _check_key(key)
        try:
            limits[key] = float(text)
        except ValueError:
            raise Sentence(f"{key} is a number, not {text!r}.", 2) from None
    return await _alter(admin, options, limits, "changed")


async def unset_quotas(admin: Admin, options: argparse.Namespace) -> int:
    for key in options.keys:
        _check_key(key)
    return await _alter(admin, options, dict.fromkeys(options.keys), "removed")


def _check_key(key: str) -> None:
    if key not in KEYS:
        hint = did_you_mean(key, KEYS) or f" There are {', '.join(KEYS)}."
        raise Sentence(f"there is no quota {key}.{hint}", 2)


async def _alter(admin: Admin, options: argparse.Namespace, limits: dict[str, float | None], done: str) -> int:
    entity = _entity(options)
    if not entity:
        raise Sentence("whose quotas? Say --user, --client-id or --ip.", 2)
    if "ip" in entity and len(entity) > 1:
        raise Sentence("--ip goes alone: an address has quotas of its own.", 2)
    await admin.alter_client_quotas(entity, limits)
    return report(options, "quota", dict.fromkeys(f"{key} of {_entity_text(entity)}" for key in limits), done)


def _entity(options: argparse.Namespace) -> dict[str, str | None]:
    """The options that name someone, with None for the default one as the protocol has it."""
    named = {kind: getattr(options, kind.replace("-", "_")) for kind in KINDS}
    return {kind: None if name == DEFAULT_ENTITY else name for kind, name in named.items() if name is not None}


def _entity_text(entity: dict[str, str | None]) -> str:
    return ", ".join(f"{kind} {DEFAULT_ENTITY if name is None else name}" for kind, name in sorted(entity.items()))
