"""A producer that is fenced never writes again, nor ends anything.

In the log of a partition its epoch never comes after a later one.
"""

from __future__ import annotations

from odradek.sim.history import FencedHeard, FencedSent, History, LogHeld


def check(history: History) -> list[str]:
    broken = []
    sent = {(event.partition, event.record) for event in history.events if isinstance(event, FencedSent)}
    for event in history.events:
        if isinstance(event, FencedHeard):
            broken.append(f"{event.name} was fenced, and was told that this is done: {event.what}")
        elif isinstance(event, LogHeld):
            epochs: dict[int, int] = {}
            for batch in event.batches:
                if batch.producer_epoch < epochs.get(batch.producer_id, -1):
                    broken.append(
                        f"{event.partition} has epoch {batch.producer_epoch} of producer {batch.producer_id} at "
                        f"{batch.base_offset}, after epoch {epochs[batch.producer_id]}"
                    )
                epochs[batch.producer_id] = batch.producer_epoch
                broken += [
                    f"{event.partition} has {record[:48]!r} at {batch.base_offset}, of a producer that was fenced"
                    for record in batch.records
                    if (event.partition, record) in sent
                ]
    return broken
