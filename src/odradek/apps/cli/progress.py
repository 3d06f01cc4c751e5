"""How far long work has come, on one line of stderr that is drawn again and again; nothing where nobody watches."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from odradek.apps.terminal.output import plural, size_text

BAR_COLUMNS = 24
REDRAW_S = 0.1


class Progress:
    """Used as a context manager; `advance` is cheap and may be called for every record."""

    def __init__(self, what: str, total: int | None = None, *, unit: str = "record", hidden: bool = False) -> None:
        self._what = what
        self._total = total
        self._unit = unit
        self._done = 0
        self._drawn_at = 0.0
        self._drawn_width = 0
        self._watched = sys.stderr.isatty() and not hidden

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def advance(self, by: int = 1) -> None:
        self._done += by
        if self._watched:
            now = time.monotonic()
            if now - self._drawn_at >= REDRAW_S:
                self._drawn_at = now
                self._draw(line(self._what, self._done, self._total, self._unit))

    def clear(self) -> None:
        """Make room on the terminal for something else."""
        if self._drawn_width:
            self._draw("")
            print("\r", end="", file=sys.stderr, flush=True)
            self._drawn_width = 0

    def _draw(self, text: str) -> None:
        print(f"\r{text:<{self._drawn_width}}", end="", file=sys.stderr, flush=True)
        self._drawn_width = len(text)


def line(what: str, done: int, total: int | None, unit: str) -> str:
    """`producing [######----]  58%  1,234 records`; without a known end only the count."""
    count = size_text(done) if unit == "byte" else plural(done, unit)
    if not total:
        return f"{what} {count}"
    share = min(done / total, 1.0)
    full = int(share * BAR_COLUMNS)
    return f"{what} [{'#' * full}{'-' * (BAR_COLUMNS - full)}] {share:4.0%}  {count}"
