"""The last stable offset never passes an open transaction, never goes back, and at last reaches the end.

Where a log has been shortened it is stable from its start on, whatever has been open there.
"""

from __future__ import annotations

from odradek.sim.history import History, LoggedBatch, LogHeld, Partition, StableSeen, TransactionsSettled


def check(history: History) -> list[str]:
    spans = {event.partition: _spans(event.batches) for event in history.events if isinstance(event, LogHeld)}
    stable: dict[tuple[str, Partition, int], int] = {}
    broken = []
    for event in history.events:
        if isinstance(event, StableSeen):
            where = f"{event.partition} on {event.node}"
            key = event.node, event.partition, event.leader_epoch
            if event.last_stable_offset < stable.get(key, 0):
                broken.append(f"{where} was stable up to {stable[key]} and then up to {event.last_stable_offset}")
            stable[key] = event.last_stable_offset
            for first, marker in spans.get(event.partition, ()):
                is_passed = event.log_start_offset <= first < event.last_stable_offset
                if is_passed and event.high_watermark <= marker:
                    broken.append(
                        f"{where} was stable up to {event.last_stable_offset} with {event.high_watermark} committed, "
                        f"and a transaction is open there from {first} to {marker}"
                    )
        elif isinstance(event, TransactionsSettled):
            broken += [f"after {event.waited_s:.0f} s in peace {each}" for each in event.undecided]
    return broken


def _spans(batches: tuple[LoggedBatch, ...]) -> list[tuple[int, int]]:
    """Where transactions begin, and where the marker of each is."""
    opened: dict[int, int] = {}
    spans = []
    for batch in batches:
        if batch.ends:
            first = opened.pop(batch.producer_id, None)
            if first is not None:
                spans.append((first, batch.base_offset))
        elif batch.transactional:
            opened.setdefault(batch.producer_id, batch.base_offset)
    return spans
