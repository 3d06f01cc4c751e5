"""What is committed is the same everywhere and for ever: an offset's record, and the image that all records make."""

from __future__ import annotations

import dataclasses
from typing import Any

from odradek.metadata.image import Image
from odradek.sim.history import Batch, Committed, DiskLost, History, PowerLost, Truncated


def check(history: History) -> list[str]:
    return [*_of_batches(history), *_cut(history), *_of_images(history)]


def _of_batches(history: History) -> list[str]:
    known: dict[int, tuple[Batch, int]] = {}
    broken = []
    for event in history.events:
        if isinstance(event, Committed):
            for batch in event.batches:
                first, by = known.setdefault(batch.base_offset, (batch, event.node_id))
                if first != batch:
                    broken.append(
                        f"offset {batch.base_offset} was committed as {_told(first)} on node {by} "
                        f"and as {_told(batch)} on node {event.node_id}"
                    )
    return broken


def _cut(history: History) -> list[str]:
    """What a node knows to be committed it never lets go of, also where it could get it again."""
    known: dict[int, int] = {}
    broken = []
    for event in history.events:
        if isinstance(event, Committed):
            known[event.node_id] = max(known.get(event.node_id, -1), event.image.provenance.offset)
        elif isinstance(event, DiskLost):
            known.pop(event.node_id, None)
        elif isinstance(event, PowerLost) and event.node in history.observers:
            known.pop(int(event.node.rpartition("-")[2]), None)
        elif isinstance(event, Truncated) and event.end_offset <= known.get(event.node_id, -1):
            broken.append(
                f"node {event.node_id} cut its log to {event.end_offset}, "
                f"and knew that everything up to {known[event.node_id]} is committed"
            )
    return broken


def _told(batch: Batch) -> str:
    return f"offsets {batch.base_offset} to {batch.last_offset} of epoch {batch.epoch}, CRC {batch.crc:08x}"


def _of_images(history: History) -> list[str]:
    """Compared where it costs little and shows most: the first and the last image of each node's life.

    What a start loads from a snapshot is its first image, and any difference that came in later is still in the last.
    """
    firsts: dict[tuple[int, int], Committed] = {}
    lasts: dict[tuple[int, int], Committed] = {}
    by_offset: dict[int, dict[int, Committed]] = {}
    for event in history.events:
        if isinstance(event, Committed):
            firsts.setdefault((event.node_id, event.life), event)
            lasts[event.node_id, event.life] = event
            by_offset.setdefault(event.image.provenance.offset, {}).setdefault(event.node_id, event)
    broken = []
    for event in (*firsts.values(), *lasts.values()):
        for node_id, other in by_offset[event.image.provenance.offset].items():
            if node_id != event.node_id and not same(event.image, other.image):
                broken.append(
                    f"nodes {event.node_id} and {node_id} have different images "
                    f"at offset {event.image.provenance.offset}: {difference(event.image, other.image)}"
                )
                break
    return broken


PARTS = ("features", "cluster", "topics", "configs", "client_quotas", "next_producer_id", "acls", "scram")


def same(one: Image, other: Image) -> bool:
    return all(getattr(one, part) == getattr(other, part) for part in PARTS)


def difference(one: Any, other: Any, where: str = "image") -> str:
    """The first part of two values that differs, in few words."""
    if type(one) is type(other) and isinstance(one, dict) and list(one) == list(other):
        pairs = [(key, one[key], other[key]) for key in one]
    elif type(one) is type(other) and isinstance(one, tuple) and len(one) == len(other):
        pairs = [(index, *each) for index, each in enumerate(zip(one, other, strict=True))]
    elif type(one) is type(other) and dataclasses.is_dataclass(one):
        names = PARTS if isinstance(one, Image) else [field.name for field in dataclasses.fields(one)]
        pairs = [(name, getattr(one, name), getattr(other, name)) for name in names]
    else:
        return f"{where} is {str(one)[:200]} and {str(other)[:200]}"
    name, mine, theirs = next(pair for pair in pairs if pair[1] != pair[2])
    return difference(mine, theirs, f"{where}.{name}")
