"""argparse's parser without what makes it slow to set up."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

USUAL_COLUMNS = 80


class Parser(argparse.ArgumentParser):
    """Parsers of actions are made of the same class, so this holds for all of them.

    argparse makes a formatter for every argument that is declared, and asks it for the terminal's width by way of
    shutil, whose import costs more than everything else here.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": _formatter, "allow_abbrev": False, **settings})


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, width=_columns() - 2)


def _columns() -> int:
    """As shutil.get_terminal_size finds it: the variable, the terminal, or the usual."""
    try:
        return int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        pass
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns if sys.__stdout__ else USUAL_COLUMNS
    except (ValueError, OSError):
        return USUAL_COLUMNS
