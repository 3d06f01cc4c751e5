"""A broken invariant, or whatever nobody expected to be raised, costs what holds it, and never the node.

Every room decides what that is (a request, a shard, a partition), lets go of it, and tells it here, where it is counted
and told. Not for the metadata log, nor for what a voter has promised: a node that doubts those stops (`Node.fail`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

log = logging.getLogger(__name__)

MAX_PLACES_TOLD = 100
"""Tracebacks; what breaks in more places than that is told in a line each."""


class Cost(StrEnum):
    """What a failure has cost."""

    REQUEST = "request"
    """It was answered with UNKNOWN_SERVER_ERROR, or if its API has no place for that, its connection is closed."""
    SHARD = "shard"
    """A coordinator's, which begins anew with what its log says, or is not there."""
    PARTITION = "partition"
    """It is not served or not followed here until it has another leader or the node starts again; or a chore has left
    it out."""
    TASK = "task"
    """What a node does on its own (a timer, a look at something): this time it was not done."""


class Containment:
    """How much of what was contained, and where it is told already."""

    def __init__(self) -> None:
        self.on_contained: Callable[[BaseException], None] = lambda failure: None
        self.counts = dict.fromkeys(Cost, 0)
        self._told_of: set[tuple[object, ...]] = set()

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def note(self, cost: Cost, what: object, failure: BaseException) -> None:
        """Counted; its traceback is told once for each place: a client or a timer may come back to it for ever."""
        self.counts[cost] += 1
        place = _place(failure)
        is_new = place not in self._told_of and len(self._told_of) < MAX_PLACES_TOLD
        if is_new:
            self._told_of.add(place)
        log.error(
            "Something is broken, which costs a %s (%s): %r", cost, what, failure, exc_info=failure if is_new else None
        )
        self.on_contained(failure)

    @contextmanager
    def at_most(self, cost: Cost, what: object) -> Iterator[None]:
        """Around work that may be left undone where it breaks."""
        try:
            yield
        except Exception as failure:  # noqa: BLE001 - whatever it is
            self.note(cost, what, failure)


def _place(failure: BaseException) -> tuple[object, ...]:
    """Where it was raised."""
    trace = failure.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = () if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
    return type(failure), *where
