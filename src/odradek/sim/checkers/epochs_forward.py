"""Epochs never go back: neither those of the quorum, as each node knows them, nor any that metadata records.

A voter must not forget an epoch in a crash either, or it could vote in it twice; an observer may, for nobody counts on
what it knows.
"""

from __future__ import annotations

from odradek.sim import facts
from odradek.sim.history import Committed, History, LeaderKnown


def check(history: History) -> list[str]:
    return [*_of_nodes(history), *_of_records(history), *_of_images(history)]


def _of_nodes(history: History) -> list[str]:
    known: dict[tuple[int, int], int] = {}
    broken = []
    for event in history.events:
        if isinstance(event, LeaderKnown):
            whose = event.node_id, -1 if event.voter else event.life
            before = known.get(whose, -1)
            if event.epoch < before:
                broken.append(f"node {event.node_id} went back from epoch {before} to {event.epoch}")
            known[whose] = event.epoch
    return broken


def _of_records(history: History) -> list[str]:
    broken = []
    for event in history.events:
        if isinstance(event, Committed):
            for earlier, later in zip(event.batches, event.batches[1:], strict=False):
                if later.epoch < earlier.epoch:
                    broken.append(
                        f"node {event.node_id} has epoch {earlier.epoch} at {earlier.base_offset} "
                        f"and epoch {later.epoch} behind it"
                    )
    return broken


def _of_images(history: History) -> list[str]:
    """Images are the same everywhere (`committed_same` sees to that), so the first node to have one speaks for all."""
    newest = -1
    known: dict[str, int] = {}
    broken = []
    for event in history.events:
        if isinstance(event, Committed) and event.image.provenance.offset > newest:
            newest = event.image.provenance.offset
            for name, number in facts.epochs(event.image).items():
                before = known.get(name, -1)
                if number < before:
                    broken.append(f"the {name} went back from {before} to {number} at offset {newest}")
                known[name] = number
    return broken
