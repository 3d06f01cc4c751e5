"""`odradek profile`: clusters under names, so that nobody types addresses twice."""

from __future__ import annotations

import argparse
import os

from odradek.apps.terminal.options import Actions, add_actions, add_format_option, pairs
from odradek.apps.terminal.output import emit, table
from odradek.apps.terminal.profiles import BOOTSTRAP, Profiles
from odradek.apps.terminal.properties import read_file
from odradek.apps.terminal.sentence import Sentence

_HERE = "odradek.apps.cli.profile"


def declare(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(
        parser,
        "Keep what is to be known of a cluster under a name. A command uses the profile that --profile or "
        "ODRADEK_PROFILE names, or else the one chosen by `odradek profile use`.",
    )
    _add(actions, "list", "show all profiles")
    adding = _add(actions, "add", "keep a cluster's address and settings under a name")
    adding.add_argument("name", metavar="NAME")
    adding.add_argument("--bootstrap-server", "-b", metavar="HOST:PORT", help="where to find the cluster")
    adding.add_argument("--command-config", metavar="FILE", help="take the settings of this client.properties")
    adding.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="one more setting of clients")
    adding.add_argument("--replace", action="store_true", help="in place of the profile of that name, if there is one")
    adding.add_argument("--use", action="store_true", help="choose it at once")
    for name, help_line in (("use", "choose the profile that holds from now on"), ("remove", "forget a profile")):
        _add(actions, name, help_line).add_argument("name", metavar="NAME")


def _add(actions: Actions, name: str, help_line: str) -> argparse.ArgumentParser:
    action = actions.add_parser(name, help=help_line, description=help_line)
    add_format_option(action)
    action.set_defaults(run=f"{_HERE}:{name}_profile")
    return action


def list_profile(options: argparse.Namespace) -> int:
    _show(options, Profiles(os.environ))
    return 0


def add_profile(options: argparse.Namespace) -> int:
    from odradek.apps.terminal.session import of_kind, one_sentence
    from odradek.client.settings import ADMIN_TABLE, Settings, parse_address

    profiles = Profiles(os.environ)
    settings = read_file(options.command_config) if options.command_config else {}
    settings |= pairs(options.set, "--set")
    if options.bootstrap_server is not None:
        settings[BOOTSTRAP] = options.bootstrap_server
    if BOOTSTRAP not in settings:
        raise Sentence("a profile needs an address: say -b HOST:PORT.", 2)
    with one_sentence():
        for address in Settings(ADMIN_TABLE, of_kind(settings, ADMIN_TABLE)).words(BOOTSTRAP):
            parse_address(address)
    if options.name in profiles.names() and not options.replace:
        raise Sentence(f"there is a profile {options.name} already: say --replace to put this one in its place.")
    profiles.write(options.name, settings)
    if options.use:
        profiles.use(options.name)
    _show(options, profiles)
    return 0


def use_profile(options: argparse.Namespace) -> int:
    profiles = Profiles(os.environ)
    profiles.read(options.name)
    profiles.use(options.name)
    _show(options, profiles)
    return 0


def remove_profile(options: argparse.Namespace) -> int:
    profiles = Profiles(os.environ)
    profiles.remove(options.name)
    _show(options, profiles)
    return 0


def _show(options: argparse.Namespace, profiles: Profiles) -> None:
    """All of them; of their settings the address only, since others may be secret."""
    current = profiles.current()
    found = [
        {
            "name": name,
            "bootstrap_servers": settings.get(BOOTSTRAP, ""),
            "settings": len(settings) - (BOOTSTRAP in settings),
            "current": name == current,
        }
        for name in profiles.names()
        for settings in [profiles.read(name)]
    ]
    lines = table(
        ("", "PROFILE", "BOOTSTRAP", "OTHER SETTINGS"),
        [("*" if each["current"] else "", each["name"], each["bootstrap_servers"], each["settings"]) for each in found],
    )
    emit(options, found, lines if found else ["No profiles yet: odradek profile add NAME -b HOST:PORT"])
