"""An epoch of the quorum has one leader: no two nodes ever name different ones, not even years apart."""

from __future__ import annotations

from odradek.sim.history import History, LeaderKnown

NOBODY = -1


def check(history: History) -> list[str]:
    leaders: dict[int, LeaderKnown] = {}
    broken = []
    for event in history.events:
        if isinstance(event, LeaderKnown) and event.leader_id != NOBODY:
            first = leaders.setdefault(event.epoch, event)
            if first.leader_id != event.leader_id:
                broken.append(
                    f"epoch {event.epoch} is led by {first.leader_id}, as node {first.node_id} has it, "
                    f"and by {event.leader_id}, as node {event.node_id} has it"
                )
    return broken
