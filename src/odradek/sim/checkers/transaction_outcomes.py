"""What a history tells of its transactions, for the checkers of them."""

from __future__ import annotations

from odradek.sim.history import (
    CommittedRead,
    History,
    LogHeld,
    Partition,
    TransactionEnded,
    TransactionEnding,
    TransactionSent,
)


class Outcome:
    """What is known of one transaction."""

    def __init__(self) -> None:
        self.sent: list[tuple[Partition, bytes]] = []
        self.commit_asked_at: int | None = None
        """As a place in the history."""
        self.committed: bool | None = None
        """As its producer was told."""


def name_of(record: bytes) -> str:
    """Of the transaction in which a record was written."""
    return record.partition(b"|")[0].decode()


def outcomes(history: History) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    for index, event in enumerate(history.events):
        if isinstance(event, TransactionSent):
            found.setdefault(event.transaction, Outcome()).sent.append((event.partition, event.record))
        elif isinstance(event, TransactionEnding) and event.committed:
            found.setdefault(event.transaction, Outcome()).commit_asked_at = index
        elif isinstance(event, TransactionEnded):
            found.setdefault(event.transaction, Outcome()).committed = event.committed
    return found


def read_at_last(history: History) -> dict[Partition, list[bytes]]:
    """The committed records of all partitions that were read to their ends."""
    found: dict[Partition, list[bytes]] = {
        event.partition: [] for event in history.events if isinstance(event, LogHeld)
    }
    for event in history.events:
        if isinstance(event, CommittedRead) and event.final:
            found[event.partition] += [record for _, record in event.records]
    return found


def trimmed(history: History) -> set[Partition]:
    """Partitions of which something was deleted: what is not there may have been."""
    return {event.partition for event in history.events if isinstance(event, LogHeld) and event.log_start_offset}
