"""Options that many commands share, so that they are spelt and explained the same everywhere."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from odradek.apps.terminal.sentence import Sentence

Actions: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

FORMATS = ("table", "json", "yaml")
WITH_ADMIN = "odradek.apps.terminal.session:with_admin"
WITH_SESSION = "odradek.apps.terminal.session:with_session"


def add_actions(parser: argparse.ArgumentParser, description: str) -> Actions:
    """Let a command have actions of its own: `odradek topic list`."""
    parser.description = description
    return parser.add_subparsers(title="actions", metavar="ACTION", required=True)


def add_remote_action(
    actions: Actions, name: str, help_line: str, work: Callable[..., Awaitable[int]], description: str = ""
) -> argparse.ArgumentParser:
    """An action that asks brokers; `work` gets an Admin and the options."""
    action = actions.add_parser(name, help=help_line, description=description or help_line)
    add_connection_options(action)
    add_format_option(action)
    action.set_defaults(run=WITH_ADMIN, work=work)
    return action


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    """Which cluster, and how to speak to it."""
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--bootstrap-server",
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help="where to find the cluster (ODRADEK_BOOTSTRAP; else the profile's, else 127.0.0.1:9092)",
    )
    group.add_argument("--profile", metavar="NAME", help="use this profile (ODRADEK_PROFILE; see odradek profile)")
    group.add_argument("--command-config", metavar="FILE", help="settings of clients, as Kafka's client.properties")


def add_format_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=FORMATS, default="table", help="how to print (default: table, for people)")


def add_many(parser: argparse.ArgumentParser, name: str, *, at_least: int, metavar: str, help_line: str = "") -> None:
    """The last argument of a command, of which there may be several, before and behind options."""
    parser.add_argument(name, nargs="+" if at_least else "*", metavar=metavar, help=help_line or None)
    parser.set_defaults(more=name)


def natural(text: str) -> int:
    """A number from 0 on."""
    if text.isascii() and text.isdecimal() and len(text) < 20:
        return int(text)
    raise argparse.ArgumentTypeError(f"a number from 0 on, not {text!r}")


def positive(text: str) -> int:
    """A number from 1 on."""
    if natural(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError("a number from 1 on, not 0")


def seconds(text: str) -> float:
    """A span of time, in seconds or parts of them."""
    try:
        span = float(text)
    except ValueError:
        span = -1.0
    if 0 <= span < 1e9:
        return span
    raise argparse.ArgumentTypeError(f"a number of seconds, not {text!r}")


def pairs(settings: list[str], flag: str) -> dict[str, str]:
    """`KEY=VALUE` texts as a mapping, or a Sentence about the one that is none."""
    found: dict[str, str] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise Sentence(f"{flag} takes KEY=VALUE, not {setting!r}.", 2)
        if key.strip() in found:
            raise Sentence(f"{flag} names {key.strip()} twice.", 2)
        found[key.strip()] = text.strip()
    return found


def topic_partitions(text: str) -> tuple[str, tuple[int, ...]]:
    """`TOPIC` or `TOPIC:0,1`: a topic and some of its partitions, none meaning all."""
    topic, colon, listed = text.partition(":")
    if topic and (not colon or all(part.isascii() and part.isdecimal() for part in listed.split(","))):
        return topic, tuple(int(part) for part in listed.split(",")) if colon else ()
    raise argparse.ArgumentTypeError(f"TOPIC or TOPIC:PARTITION,..., not {text!r}")


def datetime_ms(text: str) -> int:
    """A moment as milliseconds since 1970: ISO 8601 (local time unless it names a zone), or the number itself."""
    if text.isascii() and text.isdecimal():
        return int(text)
    from datetime import datetime

    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"a moment such as 2026-11-15T22:30:00 (or 2026-11-15, or with +01:00), not {text!r}"
        ) from None


def given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Those of the named options that were given."""
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}
