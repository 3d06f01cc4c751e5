"""Shell completion: a short script for each shell asks `odradek complete` what may come next, names in clusters too."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

from odradek.apps.cli.main import COMMANDS, parser_for
from odradek.apps.terminal.sentence import Sentence

if TYPE_CHECKING:
    from odradek.client.admin import Admin

SHELLS = ("bash", "zsh", "fish")
_HERE = "odradek.apps.cli.completion"
_TOPICS, _GROUPS, _TRANSACTIONS, _PROFILES = "topic", "group", "transaction", "profile"
_NAMES = {
    "topic": _TOPICS,
    "topics": _TOPICS,
    "group": _GROUPS,
    "groups": _GROUPS,
    "transactional_ids": _TRANSACTIONS,
    "profile": _PROFILES,
}
"""What an option or argument of this destination names, so that it can be looked up."""

ASKING_S = 2.0
"""How long someone who pressed Tab waits for names."""

_SCRIPTS = {
    "bash": r"""_odradek() {
    local IFS=$'\n'
    COMPREPLY=($(odradek complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    [[ ${#COMPREPLY[@]} -gt 0 ]] || compopt -o default
}
complete -F _odradek odradek
""",
    "zsh": r"""#compdef odradek
_odradek() {
    local -a found
    found=("${(@f)$(odradek complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found" ]]; then compadd -a found; else _files; fi
}
compdef _odradek odradek
""",
    "fish": r"""function __odradek_complete
    set -l words (commandline -opc) (commandline -ct)
    odradek complete -- $words[2..-1] 2>/dev/null
end
complete -c odradek -a '(__odradek_complete)'
""",
}


def declare(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Print a script that lets a shell complete commands, options, and names of topics, groups, transactional ids "
        "and profiles. "
        'For bash: eval "$(odradek completion bash)" in ~/.bashrc; zsh likewise in ~/.zshrc; '
        "for fish: odradek completion fish | source, in ~/.config/fish/config.fish."
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    parser.set_defaults(run=f"{_HERE}:print_script")


def declare_complete(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "What the scripts of `odradek completion` ask: the words typed so far, the last one unfinished."
    )
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="WORD")
    parser.set_defaults(run=f"{_HERE}:complete")


def print_script(options: argparse.Namespace) -> int:
    print(_SCRIPTS[options.shell], end="")
    return 0


def complete(options: argparse.Namespace) -> int:
    """Print what may stand in place of the last word; nothing, and no error, if nobody knows."""
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    with suppress(Sentence):
        for candidate in candidates(words):
            print(candidate)
    return 0


def candidates(words: Sequence[str]) -> list[str]:
    """The words that may stand in place of the last one."""
    *before, last = words or [""]
    parser, typed = _descend(parser_for(before), before)
    options = {flag: action for action in parser._actions for flag in action.option_strings}
    if typed and typed[-1] in options and _takes_value(options[typed[-1]]):
        return _beginning_with(last, _values(options[typed[-1]], words))
    commands = _subcommands(parser)
    if commands is not None:
        return _beginning_with(last, commands)
    if last.startswith("-"):
        return _beginning_with(last, [flag for flag in options if flag.startswith("--")])
    positional = _positional(parser, typed, options)
    return _beginning_with(last, _values(positional, words)) if positional is not None else []


def _descend(parser: argparse.ArgumentParser, words: Sequence[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """The parser of the action that the words lead to, and the words behind it."""
    typed = list(words)
    while True:
        nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        if not nested or not typed or typed[0] not in nested[0].choices:
            return parser, typed
        parser = nested[0].choices[typed.pop(0)]


def _subcommands(parser: argparse.ArgumentParser) -> list[str] | None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return [name for name in action.choices if name not in COMMANDS or COMMANDS[name][0]]
    return None


def _positional(
    parser: argparse.ArgumentParser, typed: Sequence[str], options: dict[str, argparse.Action]
) -> argparse.Action | None:
    """The argument that comes next; the last one goes on if it takes several."""
    waiting = [action for action in parser._actions if not action.option_strings]
    words = iter(typed)
    given = 0
    for word in words:
        if word in options:
            if _takes_value(options[word]):
                next(words, None)
        elif not word.startswith("-"):
            given += 1
    if given < len(waiting):
        return waiting[given]
    return waiting[-1] if waiting and waiting[-1].nargs in ("+", "*") else None


def _takes_value(action: argparse.Action) -> bool:
    return action.nargs != 0


def _values(action: argparse.Action, words: Sequence[str]) -> list[str]:
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    wanted = _NAMES.get(action.dest)
    if wanted is None and action.dest == "name":
        wanted = next((_NAMES[word] for word in words if word in _NAMES), None)
    if wanted == _PROFILES:
        from odradek.apps.terminal.profiles import Profiles

        return Profiles(os.environ).names()
    return _ask(wanted, words) if wanted is not None else []


def _ask(wanted: str, words: Sequence[str]) -> list[str]:
    """Names of topics, groups or transactional ids from the cluster that the words lead to."""
    import asyncio

    from odradek.apps.terminal.session import Session, gather_settings, one_sentence

    async def ask() -> list[str]:
        settings = gather_settings(_connection(words), os.environ)
        with one_sentence():
            async with asyncio.timeout(ASKING_S), Session(settings).admin() as admin:
                await admin.cluster.any_connection()
                if wanted == _GROUPS:
                    return [group.group_id for group in await admin.list_groups()]
                if wanted == _TRANSACTIONS:
                    return await _transactional_ids(admin)
                return [topic.name for topic in await admin.list_topics()]

    with suppress(TimeoutError):
        return asyncio.run(ask())
    return []


async def _transactional_ids(admin: Admin) -> list[str]:
    """Those of the coordinators that tell."""
    told = await admin.list_transactions_by_broker()
    return [each.transactional_id for some in told.values() if isinstance(some, list) for each in some]


def _connection(words: Sequence[str]) -> argparse.Namespace:
    """The options that say which cluster, out of words that are no whole command yet."""
    flags = {
        "-b": "bootstrap_server",
        "--bootstrap": "bootstrap_server",
        "--bootstrap-server": "bootstrap_server",
        "--profile": "profile",
        "--command-config": "command_config",
    }
    found = argparse.Namespace(bootstrap_server=None, profile=None, command_config=None)
    for flag, text in pairwise(words):
        name, equals, joined = flag.partition("=")
        if name in flags:
            setattr(found, flags[name], joined if equals else text)
    return found


def _beginning_with(start: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(start)]
