"""What must hold whatever happened: one promise a file, each a function from a history to the ways it was broken.

They judge by what clients saw, and by what nodes came to know where the promise is between nodes, so that tests with
real processes and real clients can use them as well.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.sim.checkers import (
    acknowledged_kept,
    answered_kept,
    committed_same,
    ends_forward,
    epochs_forward,
    fenced_leads_nothing,
    log_end,
    offsets_forward,
    offsets_kept,
    one_leader,
    one_vote,
    own_epoch_first,
    owned_once,
    producer_ids_once,
    producer_order,
    producer_state,
    quorum_settles,
    rebalances_end,
    replicas_same,
    same_record,
    seen_stays,
    unfenced_knows_itself,
    watermark_forward,
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
    one_leader.check,
    one_vote.check,
    own_epoch_first.check,
    epochs_forward.check,
    committed_same.check,
    answered_kept.check,
    fenced_leads_nothing.check,
    unfenced_knows_itself.check,
    producer_ids_once.check,
    quorum_settles.check,
    watermark_forward.check,
    ends_forward.check,
    replicas_same.check,
)


def check(history: History) -> list[str]:
    """Every broken promise, in words."""
    return [broken for checker in ALL for broken in checker(history)]
