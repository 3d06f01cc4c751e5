"""`odradek feature`: the levels of a cluster's features, what kafka-features does."""

from __future__ import annotations

import argparse
from typing import Any

from odradek.apps.terminal.options import Actions, add_actions, add_remote_action, natural, pairs
from odradek.apps.terminal.output import complain, emit, fields, table
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import failure_text
from odradek.client.admin import Admin
from odradek.client.admin.cluster import UpgradeType
from odradek.configdef import did_you_mean
from odradek.metadata.features import (
    KRAFT_VERSION,
    METADATA_VERSION,
    RELEASES,
    default_levels,
    metadata_version_of,
)
from odradek.protocol.messages.api_versions import ApiVersionsResponse

_RELEASED_WITH = {"share.version": (1, 28), "streams.version": (1, 29)}
"""The level of features that a node of Odradek does not have, and the metadata.version from which releases have it."""


def declare(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(
        parser, "Look at the levels of a cluster's features, and change them: after an upgrade, or before going back."
    )
    describing = add_remote_action(actions, "describe", "show the levels that are in use and those supported", describe)
    describing.add_argument(
        "--node", type=natural, metavar="ID", help="ask this broker what it supports (default: any)"
    )
    _add_change(actions, "upgrade", "raise levels", upgrade)
    downgrading = _add_change(actions, "downgrade", "lower levels; 0 removes a feature", downgrade)
    downgrading.add_argument("--unsafe", action="store_true", help="even if metadata may be lost")


def _add_change(actions: Actions, name: str, help_line: str, work: Any) -> argparse.ArgumentParser:
    action = add_remote_action(actions, name, help_line, work)
    action.add_argument(
        "--feature",
        "-f",
        action="append",
        default=[],
        metavar="NAME=LEVEL",
        help=f"may be given several times; the level of {METADATA_VERSION} may be a release, as in 4.1-IV0",
    )
    action.add_argument(
        "--release-version",
        "-r",
        metavar="VERSION",
        help=f"the levels that this Kafka release begins with, of all features but {KRAFT_VERSION}",
    )
    action.add_argument("--dry-run", action="store_true", help="say whether it could be done, and do nothing")
    return action


async def describe(admin: Admin, options: argparse.Namespace) -> int:
    """What one broker knows: the levels in use are the cluster's, those supported its own."""
    versions = await admin.describe_features(options.node)
    levels = _levels(versions)
    data: dict[str, Any] = {
        "epoch": versions.finalized_features_epoch if versions.finalized_features_epoch >= 0 else None,
        "features": [
            {
                "feature": each.name,
                "level": levels[each.name],
                "min_supported": each.min_version,
                "max_supported": each.max_version,
                "release": RELEASES.get(levels[each.name]) if each.name == METADATA_VERSION else None,
            }
            for each in sorted(versions.supported_features, key=lambda feature: feature.name)
        ],
    }
    rows = [
        (
            each["feature"],
            _level_text(each["feature"], each["level"]),
            _level_text(each["feature"], each["min_supported"]),
            _level_text(each["feature"], each["max_supported"]),
        )
        for each in data["features"]
    ]
    emit(options, data, [*fields([("Epoch", data["epoch"])]), *table(("FEATURE", "LEVEL", "MIN", "MAX"), rows)])
    return 0


async def upgrade(admin: Admin, options: argparse.Namespace) -> int:
    return await _change(admin, options, UpgradeType.UPGRADE)


async def downgrade(admin: Admin, options: argparse.Namespace) -> int:
    kind = UpgradeType.UNSAFE_DOWNGRADE if options.unsafe else UpgradeType.SAFE_DOWNGRADE
    return await _change(admin, options, kind)


async def _change(admin: Admin, options: argparse.Namespace, kind: UpgradeType) -> int:
    """All the levels that were asked for, or none; those that are in use already are no failure."""
    asked = _asked(options)
    levels = _levels(await admin.describe_features())
    if options.release_version is not None:
        asked = {name: level for name, level in asked.items() if name in levels}
    for name, level in asked.items():
        if name not in levels:
            hint = did_you_mean(name, levels) or " `odradek feature describe` shows those there are."
            raise Sentence(f"there is no feature {name}.{hint}")
        if (level < levels[name]) if kind is UpgradeType.UPGRADE else (level > levels[name]):
            other = "downgrade" if kind is UpgradeType.UPGRADE else "upgrade"
            at = _level_text(name, levels[name])
            raise Sentence(f"{name} is at {at}: to set {_level_text(name, level)} say `odradek feature {other}`.")
    wanted = {name: level for name, level in asked.items() if level != levels[name]}
    outcomes = {}
    if wanted:
        outcomes = await admin.update_features(wanted, upgrade_type=kind, validate_only=options.dry_run)
    done = "upgraded" if kind is UpgradeType.UPGRADE else "downgraded"
    data, lines, failures = [], [], []
    for name, level in asked.items():
        failure = outcomes.get(name)
        changed = name in wanted and failure is None
        data.append(
            {
                "feature": name,
                "from": levels[name],
                "to": level,
                "done": changed and not options.dry_run,
                "error": failure.code.name if failure else None,
            }
        )
        if failure is not None:
            failures.append(f"feature {name}: {failure_text(failure)}.")
        elif changed:
            verb = f"could be {done}" if options.dry_run else done
            lines.append(f"{name} {verb} from {_level_text(name, levels[name])} to {_level_text(name, level)}.")
        else:
            lines.append(f"{name} is at {_level_text(name, level)} already.")
    emit(options, data, lines)
    for sentence in failures:
        complain(sentence)
    return 1 if failures else 0


def _asked(options: argparse.Namespace) -> dict[str, int]:
    """The levels that were named one by one, or those of a release."""
    if bool(options.feature) == (options.release_version is not None):
        raise Sentence("name levels, as in --feature group.version=1, or a --release-version.", 2)
    if options.release_version is not None:
        return _released(options.release_version)
    return {name: _level(name, text) for name, text in pairs(options.feature, "--feature").items()}


def _level(name: str, text: str) -> int:
    if name == METADATA_VERSION and "." in text:
        return _metadata_version(text)
    if text.isascii() and text.isdecimal() and int(text) < 1 << 15:
        return int(text)
    raise Sentence(f"the level of {name} is a number, not {text!r}.", 2)


def _released(release: str) -> dict[str, int]:
    """How many voters stand in the log is a matter of the quorum and of no release, so kraft.version is not here."""
    metadata_version = _metadata_version(release)
    levels = {name: level if metadata_version >= since else 0 for name, (level, since) in _RELEASED_WITH.items()}
    levels |= default_levels(metadata_version)
    del levels[KRAFT_VERSION]
    return dict(sorted(levels.items()))


def _metadata_version(release: str) -> int:
    try:
        return metadata_version_of(release)
    except ValueError as wrong:
        raise Sentence(f"{wrong}.", 2) from None


def _levels(versions: ApiVersionsResponse) -> dict[str, int]:
    """The level in use of every feature that is supported; 0 where none is."""
    finalized = {each.name: each.max_version_level for each in versions.finalized_features}
    return {each.name: finalized.get(each.name, 0) for each in versions.supported_features}


def _level_text(name: str, level: int) -> str:
    return f"{level} ({RELEASES[level]})" if name == METADATA_VERSION and level in RELEASES else str(level)
