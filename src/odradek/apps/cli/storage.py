"""`odradek storage`: what kafka-storage does, with its words."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from odradek.adapters.clock import SystemClock
from odradek.adapters.disk import RealDisk
from odradek.adapters.entropy import SystemEntropy
from odradek.apps.cli.settings import Sources
from odradek.apps.terminal.properties import read_file
from odradek.apps.terminal.sentence import Sentence
from odradek.ids import uuid_text
from odradek.metadata.bootstrap import META_PROPERTIES_FILE, FormatError, MetaProperties
from odradek.metadata.raft.voters import BadVoters, Voter, parse_initial_controllers
from odradek.metadata.uuids import random_uuid as new_uuid
from odradek.server.configs.node_config import NodeConfig
from odradek.server.membership.identity import (
    all_directories,
    standalone_voter,
    survey,
)
from odradek.server.membership.identity import (
    format_directories as write_directories,
)


def random_uuid(_options: argparse.Namespace) -> int:
    """Print an id for a new cluster."""
    print(uuid_text(new_uuid(SystemEntropy())))
    return 0


def info(options: argparse.Namespace) -> int:
    """Say what the directories hold; 1 if something is wrong with them."""
    config = Sources(read_file(options.config), {}).load()
    directories = all_directories(config)
    there = [log_dir for log_dir in directories if os.path.isdir(log_dir)]
    problems = [f"{log_dir} does not exist" for log_dir in directories if log_dir not in there]
    with _one_sentence():
        found = survey(config, RealDisk())
    problems += [f"{log_dir} is not formatted." for log_dir in found.unformatted if log_dir in there]
    problems += [f"{log_dir} cannot be read: {why}" for log_dir, why in found.failed.items()]
    first = next(iter(found.formatted.values()), None)
    for log_dir, meta in found.formatted.items():
        if first is not None and (meta.cluster_id, meta.node_id) != (first.cluster_id, first.node_id):
            problems.append(f"{log_dir}/{META_PROPERTIES_FILE} is of another node: {_shown(meta)}")
        if meta.node_id != config.node_id:
            problems.append(f"{log_dir} belongs to node {meta.node_id}, and node.id is {config.node_id}")
    _print_list("Found log directory:" if len(there) == 1 else "Found log directories:", there)
    if first is not None:
        print(f"Found metadata: {_shown(first)}\n")
    _print_list("Found problem:" if len(problems) == 1 else "Found problems:", problems)
    return 1 if problems else 0


def format_directories(options: argparse.Namespace) -> int:
    """Prepare the directories; those that are formatted already are an error, or passed over if so asked."""
    config = Sources(read_file(options.config), {}).load()
    disk, entropy = RealDisk(), SystemEntropy()
    with _one_sentence():
        found = survey(config, disk)
        for log_dir, meta in found.formatted.items():
            if meta.cluster_id != options.cluster_id:
                raise Sentence(
                    f"Invalid cluster.id in: {log_dir}/{META_PROPERTIES_FILE}. "
                    f"Expected {options.cluster_id}, but read {meta.cluster_id}"
                )
        if found.formatted and not options.ignore_formatted:
            raise Sentence(
                f"Log directory {next(iter(found.formatted))} is already formatted. "
                "Use --ignore-formatted to ignore this directory and format the others."
            )
        for log_dir, why in found.failed.items():
            print(f"I/O error trying to read log directory {log_dir}: {why}. Ignoring...", file=sys.stderr)
        if not found.unformatted:
            if found.failed:
                raise Sentence("No available log directories to format.")
            print("All of the log directories are already formatted.")
            return 0
        plan = write_directories(
            config,
            disk,
            entropy,
            now_ms=SystemClock().now_ms(),
            cluster_id=options.cluster_id,
            unformatted=found.unformatted,
            initial_controllers=_initial_controllers(config, options, entropy),
            features=_features(options.feature),
            release_version=options.release_version,
        )
    for directory in plan.directories:
        print(f"Formatting {directory.kind} {directory.log_dir} with metadata.version {plan.release}.")
    return 0


def _initial_controllers(
    config: NodeConfig, options: argparse.Namespace, entropy: SystemEntropy
) -> tuple[Voter, ...] | None:
    if config.controller_quorum_voters:
        if options.standalone or options.initial_controllers:
            raise Sentence(
                "You cannot specify controller.quorum.voters and format the node with --initial-controllers or "
                "--standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify "
                "controller.quorum.bootstrap.servers instead."
            )
        return None
    if not config.is_controller:
        if options.standalone:
            raise Sentence("You can only use --standalone on a controller.")
        return None
    if options.standalone:
        return standalone_voter(config, entropy)
    if options.initial_controllers:
        return parse_initial_controllers(options.initial_controllers)
    if options.no_initial_controllers:
        return None
    raise Sentence(
        "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
        "--standalone, --initial-controllers, or --no-initial-controllers."
    )


def _features(settings: list[str]) -> dict[str, int]:
    features: dict[str, int] = {}
    for setting in settings:
        name, equals, level = setting.partition("=")
        if not equals:
            raise Sentence(f"Can't parse feature=level string {setting}: equals sign not found.")
        if not level.strip().isdecimal():
            raise Sentence(f"Can't parse feature=level string {setting}: the level is not a number.")
        features[name.strip()] = int(level)
    return features


def _shown(meta: MetaProperties) -> str:
    directory = f"directory.id={uuid_text(meta.directory_id)}, " if meta.directory_id is not None else ""
    return f"{{cluster.id={meta.cluster_id}, {directory}node.id={meta.node_id}, version=1}}"


def _print_list(title: str, lines: list[str]) -> None:
    if lines:
        print(title)
        print("".join(f"  {line}\n" for line in lines))


@contextmanager
def _one_sentence() -> Iterator[None]:
    try:
        yield
    except (FormatError, BadVoters) as wrong:
        raise Sentence(str(wrong)) from wrong
    except OSError as wrong:
        where = f" {wrong.filename}" if wrong.filename else ""
        raise Sentence(f"cannot write{where}: {(wrong.strerror or str(wrong)).lower()}.") from wrong
