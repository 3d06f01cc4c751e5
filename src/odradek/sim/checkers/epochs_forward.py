"""Epochs never go back: neither those of the quorum, as each node knows them, nor any that metadata records.

What was put on a device must not be forgotten in a crash either, or a node could vote twice in one epoch.
"""

from __future__ import annotations

from odradek.metadata.image import Image
from odradek.sim import facts
from odradek.sim.history import Committed, DiskLost, History, LeaderKnown, Promised


def check(history: History) -> list[str]:
    return [*_of_nodes(history), *_of_records(history), *_of_images(history)]


def _of_nodes(history: History) -> list[str]:
    known: dict[tuple[int, int], int] = {}
    promised: dict[int, int] = {}
    broken = []
    for event in history.events:
        if isinstance(event, LeaderKnown):
            before = max(known.get((event.node_id, event.life), -1), promised.get(event.node_id, -1))
            if event.epoch < before:
                broken.append(f"node {event.node_id} went back from epoch {before} to {event.epoch}")
            known[event.node_id, event.life] = event.epoch
        elif isinstance(event, Promised):
            promised[event.node_id] = max(event.epoch, promised.get(event.node_id, -1))
        elif isinstance(event, DiskLost):
            promised.pop(event.node_id, None)
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
    newest: Image | None = None
    known: dict[str, int] = {}
    broken = []
    for event in history.events:
        if isinstance(event, Committed) and (
            newest is None or event.image.provenance.offset > newest.provenance.offset
        ):
            for name, number in facts.epochs(event.image, but_those_of=newest).items():
                before = known.get(name, -1)
                if number < before:
                    at = event.image.provenance.offset
                    broken.append(f"the {name} went back from {before} to {number} at offset {at}")
                known[name] = number
            newest = event.image
    return broken
