"""How long each part of a run took, and which part is under way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from odradek.apps.terminal.output import table
from odradek.values import value

SHOWN_KINDS = 3
"""Of what Spark reports about a batch, how many kinds of work are named: the longest ones."""


@value
class Phase:
    """A part of a run that has ended; `inside` names the parts that it was part of."""

    inside: tuple[str, ...]
    name: str
    seconds: float


class Timings:
    """Collects the parts of a run in the order in which they began."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._phases: list[Phase] = []
        self._open: list[tuple[str, float]] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """While this holds, that part is under way. Parts may be inside of each other."""
        place = len(self._phases)
        inside = tuple(outer for outer, _ in self._open)
        began = self._clock()
        self._open.append((name, began))
        try:
            yield
        finally:
            self._open.pop()
            self._phases.insert(place, Phase(inside, name, self._clock() - began))

    def data(self) -> dict[str, Any]:
        """For programs."""
        phases = [
            {"phase": " / ".join((*each.inside, each.name)), "seconds": round(each.seconds, 3)} for each in self._phases
        ]
        return {"seconds": round(self._clock() - self._began, 3), "phases": phases}

    def lines(self, spark_ms: Mapping[str, Mapping[str, int]]) -> list[str]:
        """A table for people. `spark_ms` has for every query what Spark says its batches spent their time with."""
        whole = self._clock() - self._began
        rows = [
            (f"{'  ' * len(each.inside)}{each.name}", f"{each.seconds:.2f}", _share(each.seconds, whole), "")
            for each in self._phases
        ]
        for query, spent in spark_ms.items():
            kinds = {name: ms for name, ms in spent.items() if name != "triggerExecution" and ms > 0}
            longest = sorted(kinds, key=lambda name: -kinds[name])[:SHOWN_KINDS]
            seconds = spent.get("triggerExecution", 0) / 1000
            told = ", ".join(f"{name} {kinds[name] / 1000:.2f}" for name in longest)
            rows.append((f"  {query}", f"{seconds:.2f}", _share(seconds, whole), told))
        rows.append(("all", f"{whole:.2f}", _share(whole, whole), ""))
        return table(("PHASE", "SECONDS", "SHARE", "OF WHICH"), rows)


def _share(seconds: float, whole: float) -> str:
    return f"{seconds / whole:.0%}" if whole else "-"
