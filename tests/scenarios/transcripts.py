"""Stories as text: a command, `----`, what came of it, an empty line; one that changed fails, or is written anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

_RULE = "----"


def play(path: Path, run: Callable[[str, dict[str, str]], list[str]], *, rewrite: bool) -> None:
    """Run every command of the file in order and compare, or with `rewrite` keep, what each of them says.

    A command is a name and words; `key=value` words come as a dictionary, the others under their position. Lines that
    start with `#` are the storyteller's.
    """
    told: list[str] = []
    for comments, command in _commands(path.read_text()):
        name, *words = command.split()
        arguments = dict(_argument(position, word) for position, word in enumerate(words))
        told += [*comments, command, _RULE, *run(name, arguments), ""]
    story = "\n".join(told)
    if rewrite:
        path.write_text(story)
    assert path.read_text() == story, f"{path.name} tells another story now: look, then run pytest with --rewrite"


def _commands(text: str) -> Iterator[tuple[list[str], str]]:
    comments: list[str] = []
    for block in text.split("\n\n"):
        for line in block.splitlines():
            if line.startswith("#"):
                comments.append(line)
            else:
                yield comments, line
                comments = []
                break


def _argument(position: int, word: str) -> tuple[str, str]:
    key, equals, text = word.partition("=")
    return (key, text) if equals else (str(position), word)
