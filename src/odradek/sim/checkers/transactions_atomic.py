"""A transaction is there as a whole or not at all, in every partition, and as its producer was told."""

from __future__ import annotations

from odradek.sim.checkers.transaction_outcomes import outcomes, read_at_last, trimmed
from odradek.sim.history import History, Partition


def check(history: History) -> list[str]:
    there = {partition: set(records) for partition, records in read_at_last(history).items()}
    deleted = trimmed(history)
    broken = []
    for name, outcome in outcomes(history).items():
        seen = [(partition, record) for partition, record in outcome.sent if record in there[partition]]
        missing = [
            (partition, record)
            for partition, record in outcome.sent
            if record not in there[partition] and partition not in deleted
        ]
        if outcome.committed and missing:
            broken.append(f"{name} was committed, and {_told(missing)} is not there")
        elif outcome.committed is False and seen:
            broken.append(f"{name} was aborted, and {_told(seen)} is there")
        elif seen and missing:
            broken.append(f"{name} is there in part: {_told(seen)} is, and {_told(missing)} is not")
    return broken


def _told(records: list[tuple[Partition, bytes]]) -> str:
    partition, record = records[0]
    return f"{record[:48]!r} of {partition}"
