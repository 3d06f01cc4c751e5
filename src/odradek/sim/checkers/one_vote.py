"""A node votes once in an epoch, whatever happens to it meanwhile, unless its disk was lost."""

from __future__ import annotations

from odradek.sim.history import DiskLost, History, Promised

NOBODY = -1


def check(history: History) -> list[str]:
    votes: dict[tuple[int, int], int] = {}
    broken = []
    for event in history.events:
        if isinstance(event, DiskLost):
            votes = {vote: voted_id for vote, voted_id in votes.items() if vote[0] != event.node_id}
        if isinstance(event, Promised) and event.voted_id != NOBODY:
            first = votes.setdefault((event.node_id, event.epoch), event.voted_id)
            if first != event.voted_id:
                broken.append(f"node {event.node_id} voted for {first} and for {event.voted_id} in epoch {event.epoch}")
    return broken
