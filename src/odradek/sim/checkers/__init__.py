"""What must hold whatever happened: one promise a file, each a function from a history to the ways it was broken.

They judge by what clients saw, and by what nodes came to know where the promise is between nodes, so that tests with
real processes and real clients can use them as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, get_args

from odradek.sim.checkers import (
    acknowledged_kept,
    answered_kept,
    committed_read,
    committed_same,
    ends_forward,
    epochs_forward,
    fenced_leads_nothing,
    fenced_silent,
    inputs_once,
    last_values_kept,
    living_keep_sessions,
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
    read_was_sent,
    rebalances_end,
    replicas_same,
    same_record,
    seen_stays,
    stable_offset,
    start_explained,
    transactions_atomic,
    unfenced_knows_itself,
    watermark_forward,
)
from odradek.sim.checkers.promised import promised
from odradek.sim.history import (
    ClientEvent,
    Event,
    GroupEvent,
    History,
    QuorumEvent,
    ReplicaEvent,
    TableEvent,
    TransactionEvent,
)

Checker: TypeAlias = Callable[[History], list[str]]

_OF: tuple[tuple[tuple[type[Event], ...], tuple[Checker, ...]], ...] = (
    (
        get_args(ClientEvent),
        (
            acknowledged_kept.check,
            same_record.check,
            producer_order.check,
            producer_state.check,
            seen_stays.check,
            log_end.check,
            ends_forward.check,
            read_was_sent.check,
            start_explained.check,
        ),
    ),
    (
        get_args(GroupEvent),
        (offsets_kept.check, offsets_forward.check, owned_once.check, rebalances_end.check),
    ),
    (
        get_args(QuorumEvent),
        (
            one_leader.check,
            one_vote.check,
            own_epoch_first.check,
            epochs_forward.check,
            committed_same.check,
            answered_kept.check,
            fenced_leads_nothing.check,
            living_keep_sessions.check,
            unfenced_knows_itself.check,
            producer_ids_once.check,
            quorum_settles.check,
        ),
    ),
    (get_args(ReplicaEvent), (watermark_forward.check, replicas_same.check)),
    (
        get_args(TransactionEvent),
        (
            transactions_atomic.check,
            committed_read.check,
            inputs_once.check,
            stable_offset.check,
            fenced_silent.check,
        ),
    ),
    (get_args(TableEvent), (last_values_kept.check,)),
)
"""Each with what it is about: where nothing of that happened, there is nothing to judge."""

ALL: tuple[Checker, ...] = tuple(checker for _, checkers in _OF for checker in checkers)


def check(history: History) -> list[str]:
    """Every broken promise, in words."""
    history = promised(history)
    happened = set(map(type, history.events))
    return [
        broken
        for kinds, checkers in _OF
        if not happened.isdisjoint(kinds)
        for checker in checkers
        for broken in checker(history)
    ]
