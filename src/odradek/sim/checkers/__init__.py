"""What must hold whatever happened: one promise a file, each a function from a history to the ways it was broken.

They judge by what clients saw alone, so that tests with real processes and real clients can use them as well.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.sim.checkers import (
    acknowledged_kept,
    log_end,
    offsets_forward,
    offsets_kept,
    owned_once,
    producer_order,
    producer_state,
    rebalances_end,
    same_record,
    seen_stays,
)
from odradek.sim.history import History

ALL: tuple[Callable[[History], list[str]], ...] = (
    acknowledged_kept.check,
    same_record.check,
    producer_order.check,
    producer_state.check,
    seen_stays.check,
    log_end.check,
    offsets_kept.check,
    offsets_forward.check,
    owned_once.check,
    rebalances_end.check,
)


def check(history: History) -> list[str]:
    """Every broken promise, in words."""
    return [broken for checker in ALL for broken in checker(history)]
