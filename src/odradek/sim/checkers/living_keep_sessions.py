"""A broker that lives is not taken for dead before it was silent for a whole session."""

from __future__ import annotations

from odradek.sim.history import History, TakenForDead


def check(history: History) -> list[str]:
    """Who cannot be reached is not dead for that."""
    return [
        f"broker {event.broker_id} of epoch {event.broker_epoch} lives, and controller {event.controller_id} took it "
        f"for dead {event.silent_ms} ms after it was heard of"
        for event in history.events
        if isinstance(event, TakenForDead) and event.alive and event.silent_ms <= event.session_ms
    ]
