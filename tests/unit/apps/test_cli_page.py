"""What pages tell people to type is understood."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from odradek.apps.cli.main import COMMANDS, parser_for

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "howto").glob("*.md"))]


def commands(page: Path) -> list[list[str]]:
    """Every `odradek …` of the page's console blocks, also behind and before pipes."""
    found = []
    for line in re.findall(r"^\$ (.*\bodradek .*)$", page.read_text(), re.M):
        for part in re.sub(r'eval "\$\((.*)\)"', r"\1", line).split(" | "):
            words = shlex.split(re.sub(r"\s[<>]\s*\S+|\s+#.*", "", part.strip()))
            if words[:1] == ["odradek"]:
                found.append(words[1:])
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_on_pages_are_understood(page: Path) -> None:
    for words in commands(page):
        options, rest = parser_for(words).parse_known_args(words)
        assert options.run, words
        assert not rest or hasattr(options, "more"), words


def test_the_page_of_the_command_line_shows_every_command() -> None:
    shown = {words[0] for words in commands(ROOT / "docs" / "howto" / "cli.md")}
    listed = {name for name, (help_line, _) in COMMANDS.items() if help_line}
    assert listed - shown == {"start", "storage", "version"}
