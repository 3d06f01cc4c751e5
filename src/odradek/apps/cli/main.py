"""What `odradek` understands, and which module does it.

As good as nothing is imported before `main` runs: from there on Ctrl-C is caught, whatever is being imported.
"""

from __future__ import annotations

import gc
import io
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING

from odradek import __version__
from odradek.apps.terminal.sentence import Sentence

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

BEGAN = time.monotonic()
"""When the command began, near enough: the ready line of `odradek start` counts from here."""

INTERRUPTED = 130
"""What a shell expects of a command that Ctrl-C ended."""

COMMANDS = {
    "start": ("run a node until it is told to stop", "odradek.apps.cli.node_options:declare_start"),
    "storage": ("format data directories, or look at them", "odradek.apps.cli.node_options:declare_storage"),
    "topic": ("list, create, describe, change and delete topics", "odradek.apps.cli.topic:declare"),
    "produce": ("send records to a topic", "odradek.apps.cli.produce:declare"),
    "consume": ("read records from a topic", "odradek.apps.cli.consume:declare"),
    "group": ("look at consumer groups, move or delete their offsets", "odradek.apps.cli.group:declare"),
    "transaction": ("look at transactions, and end those that nobody ends", "odradek.apps.cli.transaction:declare"),
    "config": ("show and change settings of topics, brokers and groups", "odradek.apps.cli.config:declare"),
    "acl": ("list, add and remove access rules", "odradek.apps.cli.acl:declare"),
    "quota": ("list, set and remove quotas of clients", "odradek.apps.cli.quota:declare"),
    "cluster": ("look at a cluster as a whole, or run one on this machine", "odradek.apps.cli.cluster:declare"),
    "reassign": ("move partitions to other brokers", "odradek.apps.cli.reassign:declare"),
    "leader": ("let partitions have other leaders", "odradek.apps.cli.leader:declare"),
    "feature": ("show, raise and lower the levels of features", "odradek.apps.cli.feature:declare"),
    "quorum": ("look at the quorum that keeps the cluster's metadata", "odradek.apps.cli.quorum:declare"),
    "log": ("look into log files without a broker", "odradek.apps.cli.log:declare"),
    "pipeline": ("run data pipelines on Spark", "odradek.apps.pipelines.options:declare"),
    "profile": ("keep addresses and settings of clusters under names", "odradek.apps.cli.profile:declare"),
    "completion": (
        "print a script that lets a shell complete commands and names",
        "odradek.apps.cli.completion:declare",
    ),
    "complete": ("", "odradek.apps.cli.completion:declare_complete"),
    "version": ("print the version", "odradek.apps.cli.main:declare_version"),
}
"""Help and declaration by name. A command without help is for scripts and not listed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 is success, 1 something went wrong, 2 the command line itself is wrong, 130 Ctrl-C."""
    try:
        words = sys.argv[1:] if arguments is None else list(arguments)
        if isinstance(sys.stdout, io.TextIOWrapper):
            # A terminal that cannot show a character gets its number: a record must not end the command.
            sys.stdout.reconfigure(errors="backslashreplace")
        options = _parse(words)
        module, function = options.run.split(":")
        return int(getattr(import_module(module), function)(options))
    except Sentence as wrong:
        print(f"odradek: {wrong}", file=sys.stderr)
        return wrong.exit_code
    except KeyboardInterrupt:
        _ignore_further_interrupts()
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone; there is nobody left to tell.
        sys.stderr.close()
        return 1


def parser_for(words: Sequence[str]) -> argparse.ArgumentParser:
    """A parser that knows all commands by name, and what the one that is named takes: the others cost nothing."""
    from odradek.apps.terminal.parser import Parser

    parser = Parser(prog="odradek", description="Kafka in Python: one process, no JVM, every Kafka client.")
    parser.add_argument("--version", action="version", version=version_line() if "--version" in words else "")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    named = next((word for word in words if not word.startswith("-")), None)
    for name, (help_line, declaration) in COMMANDS.items():
        if help_line:
            command = commands.add_parser(name, help=help_line)
        else:
            command = commands.add_parser(name)
        if name == named:
            module, function = declaration.split(":")
            getattr(import_module(module), function)(command)
    return parser


def _parse(words: Sequence[str]) -> argparse.Namespace:
    """The options; arguments of which there may be several may also stand behind options, which argparse refuses."""
    gc.disable()  # Modules and parsers are here to stay, and looking for garbage in them takes a tenth of the time.
    try:
        parser = parser_for(words)
    finally:
        gc.enable()
    options, rest = parser.parse_known_args(words)
    if rest:
        more = getattr(options, "more", None)
        if more is None or any(word.startswith("-") and word != "-" for word in rest):
            parser.error(f"unrecognized arguments: {' '.join(rest)}")
        setattr(options, more, [*getattr(options, more), *rest])
    return options


def declare_version(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="odradek.apps.cli.main:show_version")


def show_version(_options: argparse.Namespace) -> int:
    print(version_line())
    return 0


def version_line() -> str:
    """With what is asked of whoever says that something is slow."""
    from odradek.protocol.records.native import in_use

    return f"odradek {__version__} (a Kafka 4.3 node; {in_use()})"


def _ignore_further_interrupts() -> None:
    """An impatient second Ctrl-C must not bring up a traceback while the interpreter tidies up."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
