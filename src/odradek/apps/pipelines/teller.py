"""Says how a run goes and what it waits for: a line drawn again and again where somebody watches, a log, or JSON."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from odradek.apps.pipelines.progress import Run
from odradek.apps.pipelines.timings import Timings

REDRAW_S = 0.5
PATIENCE_S = 2.0
"""From when on it is said for how long something has been going on, and in a log that it is going on at all."""

LOG_S = 10.0
"""In a log: how often that is said again, and after how long without news what a batch is busy with."""


class Teller:
    """What a run says. A context manager: while it is one, a thread keeps the line on the terminal true."""

    def __init__(
        self, pipeline: str, form: str = "table", *, quiet: bool = False, timings: Timings | None = None
    ) -> None:
        self.timings = timings or Timings()
        self._pipeline = pipeline
        self._form = form
        self._quiet = quiet
        self._watched = form == "table" and not quiet and sys.stderr.isatty()
        self._logged = form == "table" and not quiet and not self._watched
        self._run: Run | None = None
        self._waiting: list[tuple[str, float]] = []
        self._doing, self._idle = "", True
        self._since = self._said = time.monotonic()
        self._width = 0
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Teller:
        if self._watched or self._logged:
            self._thread = threading.Thread(target=self._keep_saying, name="pipeline-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._clear()

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """While this holds, that is what the run waits for; and how long it took is in the timings."""
        with self.timings.phase(what):
            self._waiting.append((what, time.monotonic()))
            self._draw()
            try:
                yield
            finally:
                self._waiting.pop()

    def follow(self, run: Run) -> None:
        """From now on the line says how far this run is."""
        self._run = run

    def doing(self, what: str, *, idle: bool = False) -> None:
        """What the queries do now, or what they wait for."""
        self._idle = idle
        if what != self._doing:
            self._doing, self._since = what, time.monotonic()

    def batch(self) -> None:
        """Something was done."""
        assert self._run is not None
        if self._form == "json" and not self._quiet:
            print(json.dumps(self._run.data("progress")), flush=True)
        elif self._logged:
            self._print(self._run.line())
        self._draw()

    def say(self, sentence: str) -> None:
        """Something that whoever runs it should know, quiet or not, as it keeps the run from going on."""
        with self._lock:
            self._clear()
            sys.stdout.flush()
            print(f"odradek: {sentence}", file=sys.stderr, flush=True)
            self._draw()

    def note(self, sentence: str) -> None:
        """Something that is good to know."""
        if not self._quiet:
            self.say(sentence)

    def end(self, dead_letter_topic: str, *, with_timings: bool = False) -> None:
        """What was done."""
        self._clear()
        self._watched = False
        if self._quiet or self._run is None:
            return
        spark_ms = {each.name: each.spark_ms for each in self._run.queries.values()}
        if self._form == "json":
            data = self._run.data("summary")
            print(json.dumps({**data, **self._timings(spark_ms)} if with_timings else data), flush=True)
            return
        print("\n".join(self._run.summary(dead_letter_topic)), flush=True)
        if with_timings:
            print("\n".join(["", *self.timings.lines(spark_ms)]), flush=True)

    def line(self) -> str:
        """How far it is and what it does, on one line."""
        what, since = self._now()
        now = _with_time(what, time.monotonic() - since)
        return f"{self._pipeline}: {now}" if self._run is None else self._run.line(now)

    def _now(self) -> tuple[str, float]:
        """What is going on, and since when."""
        return (self._waiting[-1:] or [(self._doing, self._since)])[0]

    def _timings(self, spark_ms: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
        return {"timings": {**self.timings.data(), "queries": {name: dict(spent) for name, spent in spark_ms.items()}}}

    def _keep_saying(self) -> None:
        told: tuple[str, float] | None = None
        while not self._ended.wait(REDRAW_S):
            self._draw()
            going_on, now = self._now(), time.monotonic()
            is_new_phase = bool(self._waiting) and going_on != told
            said = going_on[1] if is_new_phase else max(going_on[1], self._said)
            idle = not self._waiting and (self._idle or not self._doing)
            if self._logged and not idle and now - said > (PATIENCE_S if is_new_phase else LOG_S):
                told = going_on
                self._print(self.line())

    def _draw(self) -> None:
        with self._lock:
            if not self._watched or self._ended.is_set():
                return
            text = self.line()[: _columns() - 1]
            print(f"\r{text:<{self._width}}", end="", file=sys.stderr, flush=True)
            self._width = len(text)

    def _clear(self) -> None:
        with self._lock:
            if self._width:
                print(f"\r{'':<{self._width}}\r", end="", file=sys.stderr, flush=True)
                self._width = 0

    def _print(self, text: str) -> None:
        self._said = time.monotonic()
        print(text, file=sys.stderr, flush=True)


def doing(statuses: Mapping[str, tuple[str, int]]) -> str:
    """What queries are busy with, from Spark's word about each and the number of its batch; nothing if none is busy."""
    busy = []
    for name, (message, batch) in statuses.items():
        if message.startswith("Waiting"):
            continue
        if message.startswith(("Processing", "No new data but")):
            busy.append(f"writing batch {max(batch, 0)} of {name}")
        elif message.startswith("Getting offsets"):
            busy.append(f"asking for new records of {name}")
        elif message.startswith("Initializing"):
            busy.append(f"starting {name}")
    if len(busy) > 1:
        return f"{busy[0]} and {len(busy) - 1} more"
    return busy[0] if busy else ""


def _with_time(what: str, seconds: float) -> str:
    return f"{what} ({seconds:.0f} s)" if what and seconds >= PATIENCE_S else what


def _columns() -> int:
    """Of the terminal: a line that is longer could not be drawn over."""
    try:
        return max(os.get_terminal_size(sys.stderr.fileno()).columns, 20)
    except (OSError, ValueError):
        return 80
