"""What the commands that measure have in common: which cells, how often, and where the page goes."""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeVar


class Named(Protocol):
    """Something that is chosen by its name."""

    @property
    def name(self) -> str: ...


NamedT = TypeVar("NamedT", bound=Named)


def chosen(cells: Sequence[NamedT], patterns: Sequence[str]) -> list[NamedT]:
    """The cells whose names match one of the patterns; all without any."""
    found = [cell for cell in cells if not patterns or any(fnmatch.fnmatchcase(cell.name, each) for each in patterns)]
    if not found:
        raise SystemExit(f"no cell is called {' or '.join(patterns)}; --list shows the names")
    return found


def option_parser(module: str, description: str | None, *, output: str) -> argparse.ArgumentParser:
    """With the options of every such command; `output` says what is written."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", choices=("both", "odradek", "kafka"), default="both")
    parser.add_argument("--cell", action="append", default=[], metavar="NAME", help="name or pattern; may be repeated")
    parser.add_argument("--scale", type=float, default=1.0, metavar="X", help="times the data of each measurement")
    parser.add_argument("--list", action="store_true", help="print the names of the cells")
    parser.add_argument("--output", type=Path, metavar="FILE", help=output)
    return parser


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
